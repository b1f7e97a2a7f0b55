//! A check of the doctor.

use serde::Serialize;

/// One check.
#[derive(Debug, Serialize)]
pub struct Check {
    pub id: String,
    pub ok: bool,
    /// Whether the configured daemon cannot run without it.
    pub needed: bool,
    pub found: String,
    pub todo: String,
}

impl Check {
    pub fn new(id: impl Into<String>, result: Result<String, (String, &str)>) -> Self {
        let (ok, found, todo) = match result {
            Ok(found) => (true, found, ""),
            Err((found, todo)) => (false, found, todo),
        };
        Self {
            id: id.into(),
            ok,
            needed: true,
            found,
            todo: todo.to_owned(),
        }
    }

    pub fn optional(self) -> Self {
        Self {
            needed: false,
            ..self
        }
    }
}
