//! Multipath TCP (MPTCP), which servers written in Go listen with unless they ask for something else. A
//! connection of a client that does not speak it is an ordinary TCP connection.

use std::os::fd::{OwnedFd, RawFd};

use super::Builder;
use super::sockets::{Described, TCP_CLOSE, TcpState, address_of, ends, tcp_state};
use crate::state::SocketState;

impl Builder<'_> {
    /// One that listens, or that has had no connection yet. The kernel offers no way to make a connection of
    /// several paths anew.
    pub(super) fn multipath_socket(
        &mut self,
        socket: &OwnedFd,
        number: RawFd,
        listening: bool,
    ) -> Option<Described> {
        let TcpState { state, backlog, .. } = tcp_state(socket);
        let state = match (listening, state) {
            (true, _) => SocketState::Listening {
                backlog,
                waiting: Vec::new(),
            },
            (false, TCP_CLOSE) if !ends(socket).0 => SocketState::Idle,
            (false, _) => {
                self.refuse(format!(
                    "fd {number} is a connection of multipath TCP (MPTCP)"
                ));
                return None;
            }
        };
        Some(Described::new(state, address_of(socket)))
    }
}
