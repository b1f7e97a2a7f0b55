//! Many small questions to the kernel, on all processors at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What was asked for, or else `default`.
pub fn jobs_or(asked: usize, default: usize) -> usize {
    if asked == 0 { default.max(1) } else { asked }
}

/// `work` of each item, in the items' order, by as many threads as `jobs`. One item may take far
/// longer than the others (the page tables of a large process), so each thread takes the next.
pub fn map<Item: Sync, Answer: Send>(
    jobs: usize,
    items: &[Item],
    work: impl Fn(&Item) -> Answer + Sync,
) -> Vec<Answer> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut answers = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return answers;
            };
            answers.push((index, work(item)));
        }
    };
    let mut answers = std::thread::scope(|scope| {
        // This thread is one of them.
        let others = jobs.clamp(1, items.len().max(1)) - 1;
        let others: Vec<_> = (0..others).map(|_| scope.spawn(some)).collect();
        let mut answers = some();
        for other in others {
            let more = other.join();
            answers.extend(more.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        answers
    });
    answers.sort_unstable_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn the_answers_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..1000).collect();
        for jobs in [0, 1, 3, 2000] {
            let answers = map(jobs, &items, |item| item * 2);
            assert_eq!(
                answers,
                items.iter().map(|item| item * 2).collect::<Vec<_>>()
            );
        }
        assert!(map(4, &[] as &[u8], |item| *item).is_empty());
    }

    /// Without a second thread, the first one waits at the barrier for ever.
    #[test]
    fn two_items_are_at_work_at_the_same_time() {
        let both = Barrier::new(2);
        map(2, &[(), ()], |()| both.wait());
    }
}
