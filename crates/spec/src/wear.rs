//! Settings of even wear.

use crate::size::{Size, perhaps};
use serde::{Deserialize, Serialize};

/// Settings of even wear that are said; what is absent stays as it is, or as the server has it. They survive restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(required = true, multiple = true))]
#[serde(deny_unknown_fields, default)]
pub struct WearSettings {
    /// Begin no further pair of erase blocks, or go on.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Bytes that exchanges may copy per second, such as 80M; 1 MiB or more, or 0 for no limit.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Size>,
    /// How many erases a channel with hot content may be ahead of the least worn quiet one (with the
    /// literal rule: what it erased since it moved); 0: no channel is ever swapped.
    #[cfg_attr(feature = "clap", arg(long = "channel-threshold", value_name = "ERASES"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel_threshold_erases: Option<u64>,
    /// The same of a die, where vSSDs hold single dies.
    #[cfg_attr(feature = "clap", arg(long = "die-threshold", value_name = "ERASES"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub die_threshold_erases: Option<u64>,
    /// Let thresholds that are not 0 follow the device's age: small at first and towards its end. They do unless a threshold was set.
    #[cfg_attr(feature = "clap", arg(long, value_name = "true|false"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_age: Option<bool>,
    /// Cycles of an erase block, for thresholds that follow the age; the profile's if it was never said.
    #[cfg_attr(feature = "clap", arg(long = "endurance", value_name = "CYCLES"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endurance_cycles: Option<u32>,
    /// How far the most worn part may be ahead of the average, in thousandths, for the same; 100 if it was never said.
    #[cfg_attr(feature = "clap", arg(long = "delta", value_name = "PERMILLE"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta_permille: Option<u32>,
    /// Swap by the words of the FlashBlox paper, instead of hot content with the least worn of the quiet places.
    #[cfg_attr(feature = "clap", arg(long = "rule", value_parser = rule()))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub literal_rule: Option<bool>,
}

#[cfg(feature = "clap")]
fn rule() -> impl clap::builder::TypedValueParser<Value = bool> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(["quiet", "literal"]).map(|rule| rule == "literal")
}

/// More cycles than any flash has.
const ENDURANCE_CYCLES_MAX: u32 = 100_000_000;
/// No limit in bytes per second can be lower: a command of a host and what the cleaner does for it would take seconds.
const RATE_MIN: Size = Size(1 << 20);

pub(crate) fn check_rate(what: &str, rate: Size) -> Result<(), String> {
    if rate == Size(0) || rate >= RATE_MIN {
        return Ok(());
    }
    Err(format!(
        "{what} of {} a second is below {RATE_MIN}, the least that makes sense{}; 0 is no limit",
        rate.exact(),
        perhaps(rate, "M")
    ))
}

impl WearSettings {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == WearSettings::default()
    }

    /// These, and of those before what they do not say.
    pub fn over(self, before: WearSettings) -> WearSettings {
        WearSettings {
            paused: self.paused.or(before.paused),
            rate: self.rate.or(before.rate),
            channel_threshold_erases: self.channel_threshold_erases.or(before.channel_threshold_erases),
            die_threshold_erases: self.die_threshold_erases.or(before.die_threshold_erases),
            follow_age: self.follow_age.or(before.follow_age),
            endurance_cycles: self.endurance_cycles.or(before.endurance_cycles),
            delta_permille: self.delta_permille.or(before.delta_permille),
            literal_rule: self.literal_rule.or(before.literal_rule),
        }
    }

    /// Whether every value can be.
    ///
    /// # Errors
    /// Names the one that cannot, and what can.
    pub fn check(&self) -> Result<(), String> {
        if self.endurance_cycles.is_some_and(|cycles| !(1..=ENDURANCE_CYCLES_MAX).contains(&cycles)) {
            return Err(format!("endurance_cycles: use 1 to {ENDURANCE_CYCLES_MAX}"));
        }
        if self.delta_permille.is_some_and(|delta| !(1..=1000).contains(&delta)) {
            return Err("delta_permille: use 1 to 1000 (100 is usual: a tenth)".to_owned());
        }
        Ok(())
    }

    /// Whether its numbers can be meant.
    ///
    /// # Errors
    /// Names the value and what to write.
    pub fn check_slips(&self) -> Result<(), String> {
        let rate = self.rate.unwrap_or_default();
        check_rate("a rate", rate).map_err(|error| format!("even wear: {error}"))
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::says;

    #[test]
    fn a_rate_that_cannot_be_meant_is_refused() {
        let wear = |rate| WearSettings { rate: Some(Size(rate)), ..WearSettings::default() };
        for good in [wear(0), wear(1 << 20), WearSettings::default()] {
            assert_eq!((good.check(), good.check_slips()), (Ok(()), Ok(())));
        }
        says(wear(80).check_slips(), &["even wear", "80 bytes", "write 80M"]);
        let never = WearSettings { delta_permille: Some(0), ..WearSettings::default() };
        says(never.check(), &["delta_permille"]);
        let never = WearSettings { endurance_cycles: Some(0), ..WearSettings::default() };
        says(never.check(), &["endurance_cycles"]);
    }

    #[test]
    fn what_is_not_said_stays() {
        let before = WearSettings { paused: Some(true), rate: Some(Size(0)), ..WearSettings::default() };
        let said = WearSettings { rate: Some(Size(7)), delta_permille: Some(3), ..WearSettings::default() };
        let after = said.over(before);
        assert_eq!(after, WearSettings { paused: Some(true), ..said });
        assert_eq!(WearSettings::default().over(after), after);
    }
}
