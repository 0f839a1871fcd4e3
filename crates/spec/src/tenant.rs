//! Tenants.

use crate::name::check_name;
use serde::{Deserialize, Serialize};

/// A tenant: the owner of vSSDs and subsystems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantSpec {
    /// Its name: 1 to 64 letters, digits, `-`, `_` or `.`, the first a letter, a digit or `_`.
    pub name: String,
}

impl TenantSpec {
    /// Whether it can be.
    ///
    /// # Errors
    /// Says what is wrong with the name.
    pub fn check(&self) -> Result<(), String> {
        check_name("tenant", &self.name)
    }
}
