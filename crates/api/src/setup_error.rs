//! Why a set-up file cannot be used.

/// What an error of the parser does not say.
fn hint_about(error: &toml::de::Error) -> &'static str {
    if error.message().contains("invalid type: map, expected a sequence") {
        "a file may have several of these: write two brackets on each side, as in [[tenant]]\n"
    } else {
        ""
    }
}

/// A set-up file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Not TOML, or a field that does not exist or has the wrong form; the message names line and field.
    #[error("{0}{hint}", hint = hint_about(.0))]
    Syntax(#[from] toml::de::Error),
    /// An object refers to another one that is not declared in the file.
    #[error("{kind} `{name}` names {refers_to_kind} `{refers_to}`, which the file does not declare; add it")]
    Dangling {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Kind it refers to.
        refers_to_kind: &'static str,
        /// Name it refers to.
        refers_to: String,
    },
    /// A number that cannot be meant; the message names the object and what to write.
    #[error("{0}")]
    Value(String),
    /// Two objects of one kind have the same name.
    #[error("{kind} `{name}` is declared twice; remove one or rename it")]
    Twice {
        /// Kind of the objects.
        kind: &'static str,
        /// Their name.
        name: String,
    },
}
