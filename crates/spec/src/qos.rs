//! QoS sets: volumes and vSSDs that share token buckets.

use crate::amount::Amount;
use crate::name::check_name;
use crate::size::Size;
use serde::{Deserialize, Serialize};

/// A QoS set: what its members have together, whatever others do, and what they get besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct QosSetSpec {
    /// Its name, as of a tenant.
    pub name: String,
    /// What is committed to it each second: bytes read and written by hosts, as in `200 MiB` (1 MiB or more), or commands, as in
    /// `5000 commands` (10 or more).
    #[cfg_attr(feature = "clap", arg(long))]
    pub rate: Amount,
    /// Bytes that a token is worth, where its unit is bytes: a command takes whole tokens, and at least one.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = default_token()))]
    #[serde(default = "default_token")]
    pub token: Size,
    /// What its bucket holds, in the unit of the rate; what comes in a tenth of a second if absent, and 1 MiB or 64 commands at least.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Amount>,
    /// With so much in its bucket it is in the committed state; below, in the second one. Half of the bucket if absent; with 0 it is always in
    /// the committed state, and never gets more than its rate.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Amount>,
    /// What it gets in the second state each second at most, while nobody else has anything to do: all that is idle if absent, nothing if 0.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_rate: Option<Amount>,
    /// Volumes in it, by name.
    #[cfg_attr(feature = "clap", arg(long = "volume", value_name = "VOLUME"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// vSSDs that are in it with all their volumes, those of later, too, or with the application at their erase blocks.
    #[cfg_attr(feature = "clap", arg(long = "vssd", value_name = "VSSD"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vssds: Vec<String>,
}

/// A block of a host.
const fn default_token() -> Size {
    Size(4096)
}

/// The largest token that makes sense.
const TOKEN_MAX: Size = Size(1 << 20);
/// No rate can be lower: a command of a host would wait too long.
const RATE_MIN: Size = Size(1 << 20);
const COMMANDS_MIN: u64 = 10;
/// Beyond it a number is a slip, and times in nanoseconds still fit.
const UNITS_MAX: u64 = 1 << 50;
/// A bucket that nothing is said of.
const BUCKET_MIN: Size = Size(1 << 20);
const BUCKET_COMMANDS_MIN: u64 = 64;

impl QosSetSpec {
    /// One without members, which says no more than its rate.
    pub fn new(name: &str, rate: Amount) -> QosSetSpec {
        QosSetSpec {
            name: name.to_owned(),
            rate,
            token: default_token(),
            bucket: None,
            threshold: None,
            second_rate: None,
            volumes: Vec::new(),
            vssds: Vec::new(),
        }
    }

    /// What its bucket holds.
    pub fn bucket_in_force(&self) -> Amount {
        let least = match self.rate {
            Amount::Bytes(_) => BUCKET_MIN.bytes().max(self.token.bytes()),
            Amount::Commands(_) => BUCKET_COMMANDS_MIN,
        };
        self.bucket.unwrap_or(self.rate.of_same_unit((self.rate.units() / 10).max(least)))
    }

    /// From where on it is in the committed state.
    pub fn threshold_in_force(&self) -> Amount {
        self.threshold.unwrap_or(self.rate.of_same_unit(self.bucket_in_force().units() / 2))
    }

    /// What was chosen: fields as files call them, and their values for people.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        // Without `..`, so that a new field cannot be forgotten.
        let QosSetSpec { name: _, rate, token, bucket: _, threshold: _, second_rate, volumes, vssds } = self;
        vec![
            ("rate", rate.to_string()),
            ("token", token.exact()),
            ("bucket", self.bucket_in_force().to_string()),
            ("threshold", self.threshold_in_force().to_string()),
            ("second_rate", second_rate.map_or("all that is idle".to_owned(), |rate| rate.to_string())),
            ("volumes", volumes.join(",")),
            ("vssds", vssds.join(",")),
        ]
    }

    /// Whether it can be; whether its members exist is the server's to say.
    ///
    /// # Errors
    /// Names the set, what is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        check_name("QoS set", &self.name)?;
        self.check_slips()
    }

    /// Whether its numbers and members can be meant.
    ///
    /// # Errors
    /// Names the set, the value, and what to write.
    pub fn check_slips(&self) -> Result<(), String> {
        self.find_slip().map_err(|what| format!("QoS set \"{}\": {what}", self.name))
    }

    fn find_slip(&self) -> Result<(), String> {
        self.check_amounts()?;
        self.check_bucket()?;
        for (kind, names) in [("volume", &self.volumes), ("vSSD", &self.vssds)] {
            let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
            if let Some((_, name)) = twice {
                return Err(format!("it names {kind} \"{name}\" twice; leave one out"));
            }
        }
        Ok(())
    }

    /// Whether the rate is not too low, and all amounts have its unit.
    fn check_amounts(&self) -> Result<(), String> {
        let rate = self.rate;
        match rate {
            Amount::Bytes(size) if size < RATE_MIN => {
                return Err(format!(
                    "a rate of {rate} a second is below {RATE_MIN}, the least that makes sense{}",
                    crate::size::perhaps(size, "M")
                ));
            }
            Amount::Commands(commands) if commands < COMMANDS_MIN => {
                return Err(format!(
                    "a rate of {rate} a second is below {COMMANDS_MIN}, the least that makes sense"
                ));
            }
            _ => {}
        }
        let said = [
            ("rate", Some(rate)),
            ("bucket", self.bucket),
            ("threshold", self.threshold),
            ("second_rate", self.second_rate),
        ];
        for (field, amount) in said.into_iter().filter_map(|(field, amount)| Some((field, amount?))) {
            // 0 is nothing in any unit.
            if amount.units() > 0 && !amount.is_like(rate) {
                let (unit, own) = (rate.unit(), amount.unit());
                return Err(format!(
                    "{field} counts {own} and the rate counts {unit}; write both in the same unit"
                ));
            }
            if amount.units() > UNITS_MAX {
                let most = rate.of_same_unit(UNITS_MAX);
                return Err(format!("{field} of {amount} is above the most there is, {most}"));
            }
        }
        Ok(())
    }

    /// Whether the bucket holds a token, and its threshold is reached.
    fn check_bucket(&self) -> Result<(), String> {
        let token = self.token;
        if token == Size(0) || token > TOKEN_MAX {
            return Err(format!("a token of {}; use 1 byte to {TOKEN_MAX} (4 KiB is usual)", token.exact()));
        }
        let (bucket, threshold) = (self.bucket_in_force(), self.threshold_in_force());
        let least = if matches!(self.rate, Amount::Bytes(_)) { token.bytes() } else { 1 };
        if bucket.units() < least {
            let least = self.rate.of_same_unit(least);
            return Err(format!("a bucket of {bucket} holds no token; use {least} or more"));
        }
        if threshold.units() > bucket.units() {
            return Err(format!(
                "a threshold of {threshold} is above the bucket of {bucket}, and never reached"
            ));
        }
        Ok(())
    }
}

/// A change of a QoS set; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(required = true, multiple = true))]
#[serde(deny_unknown_fields, default)]
pub struct QosSetChange {
    /// As of a new set.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Amount>,
    /// As of a new set.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Size>,
    /// As of a new set.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Amount>,
    /// As of a new set.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Amount>,
    /// As of a new set.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_rate: Option<Amount>,
    /// All volumes that are in it from now on.
    #[cfg_attr(feature = "clap", arg(long = "volume", value_name = "VOLUME"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
    /// All vSSDs that are in it from now on.
    #[cfg_attr(feature = "clap", arg(long = "vssd", value_name = "VSSD"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vssds: Option<Vec<String>>,
}

impl QosSetChange {
    /// A set with these changes.
    pub fn over(self, before: QosSetSpec) -> QosSetSpec {
        QosSetSpec {
            name: before.name,
            rate: self.rate.unwrap_or(before.rate),
            token: self.token.unwrap_or(before.token),
            bucket: self.bucket.or(before.bucket),
            threshold: self.threshold.or(before.threshold),
            second_rate: self.second_rate.or(before.second_rate),
            volumes: self.volumes.unwrap_or(before.volumes),
            vssds: self.vssds.unwrap_or(before.vssds),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::says;

    fn mib(mib: u64) -> Amount {
        Amount::Bytes(Size(mib << 20))
    }

    #[test]
    fn what_is_not_said_follows_from_the_rate() {
        let set = QosSetSpec::new("a", mib(200));
        assert_eq!((set.bucket_in_force(), set.threshold_in_force()), (mib(20), mib(10)));
        let slow = QosSetSpec::new("a", Amount::Commands(100));
        assert_eq!(slow.bucket_in_force(), Amount::Commands(64));
        assert_eq!((set.check(), slow.check()), (Ok(()), Ok(())));
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(text, r#"{"name":"a","rate":209715200,"token":4096}"#);
        assert_eq!(serde_json::from_str::<QosSetSpec>(&text).unwrap(), set);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let set = |change: fn(&mut QosSetSpec)| {
            let mut set = QosSetSpec::new("a", mib(200));
            change(&mut set);
            set.check()
        };
        says(set(|set| set.rate = Amount::Bytes(Size(5))), &["QoS set \"a\"", "below 1 MiB", "write 5M"]);
        says(set(|set| set.rate = Amount::Commands(0)), &["0 commands", "below 10"]);
        says(
            set(|set| set.bucket = Some(Amount::Commands(9))),
            &["bucket counts commands", "rate counts bytes"],
        );
        says(set(|set| set.second_rate = Some(Amount::Commands(9))), &["second_rate", "same unit"]);
        assert_eq!(set(|set| set.second_rate = Some(Amount::Commands(0))), Ok(()), "nothing is nothing");
        says(set(|set| set.threshold = Some(mib(21))), &["threshold of 21 MiB", "bucket of 20 MiB"]);
        says(set(|set| set.bucket = Some(Amount::Bytes(Size(4095)))), &["holds no token", "4 KiB"]);
        says(set(|set| set.token = Size(0)), &["token of 0 bytes"]);
        says(set(|set| set.rate = Amount::Bytes(Size(u64::MAX))), &["above the most"]);
        says(set(|set| set.volumes = vec!["x".into(), "x".into()]), &["volume \"x\" twice"]);
        says(set(|set| set.name = "a b".into()), &["QoS set name"]);
    }

    #[test]
    fn a_change_keeps_what_it_does_not_say() {
        let set = QosSetSpec { volumes: vec!["x".into()], ..QosSetSpec::new("a", mib(200)) };
        let change =
            QosSetChange { rate: Some(mib(9)), vssds: Some(vec!["y".into()]), ..QosSetChange::default() };
        let changed = change.over(set.clone());
        assert_eq!(changed, QosSetSpec { rate: mib(9), vssds: vec!["y".into()], ..set });
    }
}
