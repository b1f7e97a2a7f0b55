//! A stack of undo steps: runs in reverse order, once, also while a panic unwinds.

/// One step; its error says in words what could not be undone.
type Step<'a> = (String, Box<dyn FnOnce() -> Result<(), String> + 'a>);

/// Undo steps, newest last. Dropping it without [`Undo::disarm`] runs them and logs the failures.
///
/// ```
/// use dormouse_system::undo::Undo;
///
/// let mut undo = Undo::new();
/// undo.push("scheduler", || Err("busy".to_owned()));
/// // … change the scheduler …
/// assert_eq!(undo.run(), ["scheduler: busy"]);
/// ```
#[derive(Default)]
pub struct Undo<'a> {
    steps: Vec<Step<'a>>,
}

impl<'a> Undo<'a> {
    /// Nothing to undo yet.
    pub fn new() -> Undo<'a> {
        Undo::default()
    }

    /// Notes how to undo what is about to be done. Push first, then do: a change that fails
    /// half-way is undone, too.
    pub fn push(
        &mut self,
        name: impl Into<String>,
        step: impl FnOnce() -> Result<(), String> + 'a,
    ) {
        self.steps.push((name.into(), Box::new(step)));
    }

    /// Forgets all steps without running them.
    pub fn disarm(&mut self) {
        self.steps.clear();
    }

    /// Runs all steps, newest first; a failing step does not stop the others. Returns the
    /// failures, each as `name: reason`.
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
        for failure in self.run() {
            tracing::warn!("{failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn all_steps_run_in_reverse_order() {
        let log = RefCell::new(Vec::new());
        let mut undo = Undo::new();
        for name in ["node", "freeze", "migrate"] {
            let log = &log;
            undo.push(name, move || {
                log.borrow_mut().push(name);
                match name {
                    "freeze" => Err("stuck".to_owned()),
                    _ => Ok(()),
                }
            });
        }
        assert_eq!(undo.run(), ["freeze: stuck"]);
        drop(undo);
        assert_eq!(*log.borrow(), ["migrate", "freeze", "node"]);
    }

    #[test]
    fn dropping_undoes_and_disarming_does_not() {
        let count = Cell::new(0);
        let bump = || {
            count.set(count.get() + 1);
            Ok(())
        };
        let mut undo = Undo::new();
        undo.push("a", bump);
        drop(undo);
        assert_eq!(count.get(), 1);
        let mut undo = Undo::new();
        undo.push("a", bump);
        undo.disarm();
        drop(undo);
        assert_eq!(count.get(), 1);
    }
}
