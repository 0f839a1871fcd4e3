//! The seed bank: runs that found a bug once, kept with one line of story each. Every entry is played by the
//! tests, so that a bug stays found.
//!
//! An entry is a TOML file in `seeds/`: a seed with its shape, or a whole (shrunk) plan as JSON, which survives
//! changes of the generator.

use crate::generate::{Shape, generate};
use crate::plan::Plan;
use serde::{Deserialize, Serialize};

/// One entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What happened, in one line.
    pub story: String,
    /// System it ran on: `model`, `stack`, `shard`.
    pub system: String,
    /// Planted bug that this entry must catch; without one the run must be clean.
    #[serde(default)]
    pub mutant: Option<String>,
    /// Seed of the plan.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Further seeds of an entry with a planted bug that takes a coincidence: one of all its seeds must meet it. Which one does
    /// depends on the timing of the whole stack.
    #[serde(default)]
    pub or_seeds: Vec<u64>,
    /// Shape of the plan of the seed; that of the system's sets without one.
    #[serde(default)]
    pub shape: Option<Shape>,
    /// The plan itself, as JSON.
    #[serde(default)]
    pub plan: Option<String>,
}

/// An entry that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BankError {
    /// Not TOML of an entry.
    #[error("seed bank entry: {0}")]
    Toml(#[from] toml::de::Error),
    /// Not JSON of a plan.
    #[error("plan of a seed bank entry: {0}")]
    Plan(#[from] serde_json::Error),
    /// Neither a seed nor a plan.
    #[error("a seed bank entry has a `seed` or a `plan`")]
    Empty,
}

impl Entry {
    /// Reads an entry.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Entry, BankError> {
        Ok(toml::from_str(text)?)
    }

    /// The plan of the entry, of the first of its seeds.
    ///
    /// # Errors
    /// If it has none, or one that cannot be read.
    pub fn plan(&self) -> Result<Plan, BankError> {
        match (&self.plan, self.seed) {
            (Some(text), _) => Ok(serde_json::from_str(text)?),
            (None, Some(seed)) => Ok(self.generated(seed)),
            (None, None) => Err(BankError::Empty),
        }
    }

    /// The plans of all its seeds.
    ///
    /// # Errors
    /// As [`Entry::plan`].
    pub fn plans(&self) -> Result<Vec<Plan>, BankError> {
        let further = self.or_seeds.iter().map(|&seed| self.generated(seed));
        Ok([self.plan()?].into_iter().chain(further).collect())
    }

    fn generated(&self, seed: u64) -> Plan {
        let shape = self.shape.clone().unwrap_or_else(|| crate::systems::shape(&self.system));
        generate(seed, &shape)
    }
}
