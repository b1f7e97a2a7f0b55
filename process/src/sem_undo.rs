//! Adjustments of System V semaphores (`SEM_UNDO`): what the kernel adds to a semaphore when a process ends.
//!
//! No call reads them, but one tells whether they leave their range. Operations of one call are done
//! together or not at all, so a list of operations that lifts an adjustment by some amount, and
//! then waits for what cannot come, changes nothing and has one of two answers: `ERANGE` where
//! the adjustment would have left its range, and `EAGAIN` where it would not have. The amounts at
//! which the answer changes tell the adjustment.

/// Largest value of a semaphore, and largest adjustment; the smallest is one below its negative.
pub const VALUE_MAX: i32 = 32_767;
/// A value can be moved by this much up or down.
const STEP_MAX: i32 = 16_383;
/// Bytes of an operation (`struct sembuf`).
pub const OPERATION_BYTES: usize = 6;
/// Operations that a semaphore takes at most: [`moves`] over the whole range.
pub const MOVES_MAX: usize = 10;

/// Operations that leave the value of a semaphore, and change the adjustment of the process that makes them `by`
/// this much. A whole call does not wait.
pub fn moves(semaphore: u16, value: u16, by: i32) -> Vec<u8> {
    let mut operations = Vec::new();
    let mut left = by;
    while left != 0 {
        let step = left.clamp(-STEP_MAX, STEP_MAX);
        // The adjustment goes against the operation.
        let adjusting = operation(semaphore, -step, true);
        let back = operation(semaphore, step, false);
        let lifts_first = i32::from(value) <= VALUE_MAX - STEP_MAX;
        let adjusts_first = lifts_first == (step < 0);
        match adjusts_first {
            true => operations.extend([adjusting, back]),
            false => operations.extend([back, adjusting]),
        }
        left -= step;
    }
    operations.concat()
}

/// An operation that can never be done.
pub fn never(semaphore: u16) -> [u8; OPERATION_BYTES] {
    operation(semaphore, -VALUE_MAX - 1, false)
}

fn operation(semaphore: u16, by: i32, undo: bool) -> [u8; OPERATION_BYTES] {
    const SEM_UNDO: i32 = 0x1000;
    let flags = libc::IPC_NOWAIT | if undo { SEM_UNDO } else { 0 };
    let mut bytes = [0; OPERATION_BYTES];
    bytes[..2].copy_from_slice(&semaphore.to_ne_bytes());
    bytes[2..4].copy_from_slice(&(by as i16).to_ne_bytes());
    bytes[4..].copy_from_slice(&(flags as i16).to_ne_bytes());
    bytes
}

/// The adjustment, by the answers to "would it leave its range if it were lifted by this much?".
///
/// # Errors
/// That of the answers.
pub fn adjustment<Error>(mut leaves: impl FnMut(i32) -> Result<bool, Error>) -> Result<i32, Error> {
    // The smallest lift that leaves the range.
    let (mut stays, mut left) = (0, 2 * VALUE_MAX + 2);
    while left - stays > 1 {
        let middle = stays + (left - stays) / 2;
        match leaves(middle)? {
            true => left = middle,
            false => stays = middle,
        }
    }
    Ok(VALUE_MAX + 1 - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Set(i32);

    impl Set {
        fn with(value: i32) -> Self {
            // SAFETY: no memory involved.
            unsafe {
                let id = libc::semget(libc::IPC_PRIVATE, 1, 0o600);
                assert!(id >= 0);
                assert_eq!(libc::semctl(id, 0, libc::SETVAL, value), 0);
                Self(id)
            }
        }

        fn value(&self) -> i32 {
            // SAFETY: no memory involved.
            unsafe { libc::semctl(self.0, 0, libc::GETVAL) }
        }

        fn last(&self) -> i32 {
            // SAFETY: no memory involved.
            unsafe { libc::semctl(self.0, 0, libc::GETPID) }
        }

        /// 0, or the error.
        fn operate(&self, bytes: &[u8]) -> i32 {
            let mut operations = bytes.to_vec();
            // SAFETY: as many operations as the bytes are.
            let done = unsafe {
                let count = operations.len() / OPERATION_BYTES;
                libc::semop(self.0, operations.as_mut_ptr().cast(), count)
            };
            match done {
                0 => 0,
                _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
            }
        }

        fn adjustment(&self, value: u16) -> i32 {
            let leaves = |by| {
                let bytes = [moves(0, value, by), never(0).to_vec()].concat();
                assert!(bytes.len() <= (MOVES_MAX + 1) * OPERATION_BYTES);
                match self.operate(&bytes) {
                    libc::ERANGE => Ok(true),
                    libc::EAGAIN => Ok(false),
                    error => Err(error),
                }
            };
            adjustment(leaves).expect("answers")
        }
    }

    impl Drop for Set {
        fn drop(&mut self) {
            // SAFETY: no memory involved.
            unsafe { libc::semctl(self.0, 0, libc::IPC_RMID) };
        }
    }

    #[test]
    fn every_adjustment_is_made_and_found_at_every_value_and_the_search_changes_nothing() {
        for value in [0u16, 1, 16_383, 16_384, 16_385, 32_766, 32_767] {
            for wanted in [
                0, 1, -1, 7, 16_383, -16_384, 32_766, 32_767, -32_767, -32_768,
            ] {
                let set = Set::with(i32::from(value));
                // No operation at all is an error.
                let expected = if wanted == 0 { libc::EINVAL } else { 0 };
                assert_eq!(set.operate(&moves(0, value, wanted)), expected);
                let last = set.last();
                assert_eq!(set.adjustment(value), wanted, "at {value}");
                assert_eq!((set.value(), set.last()), (i32::from(value), last));
            }
        }
    }

    #[test]
    fn what_is_found_is_what_the_kernel_adds_at_the_end_of_a_process() {
        let set = Set::with(5);
        // SAFETY: the child makes no calls but these; it is reaped.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let mut take = operation(0, -3, true);
                libc::semop(set.0, take.as_mut_ptr().cast(), 1);
                let found = set.adjustment(2);
                libc::_exit(found);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            let ended = (libc::WIFEXITED(status), libc::WEXITSTATUS(status));
            assert_eq!(ended, (true, 3));
        }
        assert_eq!(set.value(), 5);
    }
}
