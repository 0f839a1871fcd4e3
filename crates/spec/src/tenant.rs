//! Tenants.

use crate::name::check_name;
use serde::{Deserialize, Serialize};

/// A tenant: the owner of vSSDs and subsystems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct TenantSpec {
    /// Its name: 1 to 64 letters, digits, `-`, `_` or `.`, the first a letter, a digit or `_`.
    pub name: String,
    /// Weight among the tenants of a core, 1 to 1000: 200 gets twice the time of 100. `diecut tenant set` changes it while it is served.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = default_weight()))]
    #[serde(default = "default_weight")]
    pub weight: u32,
}

/// All alike; with room below.
const fn default_weight() -> u32 {
    100
}

/// Beyond it a turn would count next to nothing.
const WEIGHT_MAX: u32 = 1000;

impl TenantSpec {
    /// The weight of tenants that say none.
    pub const DEFAULT_WEIGHT: u32 = default_weight();

    /// One of the usual weight.
    pub fn new(name: &str) -> TenantSpec {
        TenantSpec { name: name.to_owned(), weight: TenantSpec::DEFAULT_WEIGHT }
    }

    /// Whether it can be.
    ///
    /// # Errors
    /// Names the tenant, what is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        check_name("tenant", &self.name)?;
        self.check_slips()
    }

    /// Whether its numbers can be meant.
    ///
    /// # Errors
    /// Names the tenant, the value, and what to write.
    pub fn check_slips(&self) -> Result<(), String> {
        let what = match self.weight {
            0 => "weight 0 would starve it",
            1..=WEIGHT_MAX => return Ok(()),
            _ => "its neighbours would wait too long",
        };
        let TenantSpec { name, weight } = self;
        Err(format!("tenant \"{name}\": a weight of {weight}: {what}; use 1 to {WEIGHT_MAX} (100 is usual)"))
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::says;

    #[test]
    fn weights_that_cannot_be_are_refused() {
        let tenant = |weight| TenantSpec { weight, ..TenantSpec::new("a") };
        assert_eq!([1, 100, 1000].map(|weight| tenant(weight).check()), [Ok(()), Ok(()), Ok(())]);
        says(tenant(0).check(), &["tenant \"a\"", "weight of 0", "starve", "1 to 1000"]);
        says(tenant(1001).check(), &["tenant \"a\"", "weight of 1001", "1 to 1000"]);
        says(TenantSpec::new("a b").check(), &["tenant name"]);
    }

    /// Goal: what exists is read. Method: a tenant as it was written before it had a weight.
    #[test]
    fn a_tenant_without_a_weight_has_the_usual_one() {
        let found: TenantSpec = serde_json::from_str(r#"{"name":"a"}"#).unwrap();
        assert_eq!(found, TenantSpec::new("a"));
        let light = TenantSpec { weight: 7, ..found };
        assert_eq!(serde_json::to_string(&light).unwrap(), r#"{"name":"a","weight":7}"#);
    }
}
