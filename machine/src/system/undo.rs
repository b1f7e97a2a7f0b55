//! A stack of undo operations: they run in reverse order, once, also when a panic unwinds.

/// One thing to take back; returns what went wrong if it could not.
type Step<'a> = (&'static str, Box<dyn FnOnce() -> Result<(), String> + 'a>);

/// A stack of undo steps. Dropping it without [`Undo::disarm`] runs them.
#[derive(Default)]
pub struct Undo<'a> {
    steps: Vec<Step<'a>>,
}

impl<'a> Undo<'a> {
    pub fn new() -> Undo<'a> {
        Undo { steps: Vec::new() }
    }

    /// Remembers how to take back what is about to be done (push first, then do: a step that
    /// fails half-way is taken back, too).
    pub fn push(&mut self, name: &'static str, step: impl FnOnce() -> Result<(), String> + 'a) {
        self.steps.push((name, Box::new(step)));
    }

    /// Takes the newest step off without running it, for callers that do it themselves.
    pub fn disarm(&mut self) {
        self.steps.clear();
    }

    /// Runs all steps, newest first; a failing one does not stop the others.
    pub fn run(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        while let Some((name, step)) = self.steps.pop() {
            if let Err(failure) = step() {
                failures.push(format!("{name}: {failure}"));
            }
        }
        failures
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.run();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn steps_run_in_reverse_order_and_all_of_them() {
        let log = RefCell::new(Vec::new());
        let mut undo = Undo::new();
        for name in ["node", "freeze", "migrate"] {
            let log = &log;
            undo.push(name, move || {
                log.borrow_mut().push(name);
                if name == "freeze" {
                    Err("stuck".to_owned())
                } else {
                    Ok(())
                }
            });
        }
        assert_eq!(undo.run(), ["freeze: stuck"]);
        drop(undo);
        assert_eq!(*log.borrow(), ["migrate", "freeze", "node"]);
    }

    #[test]
    fn dropping_undoes_and_disarming_does_not() {
        let count = RefCell::new(0);
        let bump = || {
            *count.borrow_mut() += 1;
            Ok(())
        };
        let mut undo = Undo::new();
        undo.push("a", bump);
        drop(undo);
        assert_eq!(*count.borrow(), 1);
        let mut undo = Undo::new();
        undo.push("a", bump);
        undo.disarm();
        drop(undo);
        assert_eq!(*count.borrow(), 1);
    }
}
