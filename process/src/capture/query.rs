//! One remote system call of a batch that asks for something.

use crate::ptrace::{Answer, Argument, Batch, CallId};

/// A remote system call: the answer is its result, or bytes that it writes.
pub(super) struct Query {
    pub call: CallId,
    pub answer: Answer,
    /// What it is for, in an error.
    pub action: &'static str,
}

pub(super) fn query(
    batch: &mut Batch,
    (thread, number): (usize, libc::c_long),
    arguments: &[Argument],
    answer: Answer,
    action: &'static str,
) -> Query {
    Query {
        call: batch.call(thread, number, arguments),
        answer,
        action,
    }
}

/// A query whose answer is the result of the call.
pub(super) fn result(
    batch: &mut Batch,
    call: (usize, libc::c_long),
    arguments: &[u64],
    action: &'static str,
) -> Query {
    let words: Vec<Argument> = arguments.iter().map(|word| Argument::Word(*word)).collect();
    let nothing = batch.answer(0);
    query(batch, call, &words, nothing, action)
}

/// A query by `prctl` whose answer is written to memory.
pub(super) fn written(
    batch: &mut Batch,
    thread: usize,
    option: u64,
    action: &'static str,
) -> Query {
    let answer = batch.answer(8);
    let arguments = [option.into(), answer.into()];
    query(batch, (thread, libc::SYS_prctl), &arguments, answer, action)
}
