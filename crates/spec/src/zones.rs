//! Zones of a volume on a vSSD that is for zones.

use crate::size::Size;
use serde::{Deserialize, Serialize};

/// What the zones of a volume are like; only for volumes on a vSSD whose use is zones. What is absent the server chooses, and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct ZoneSpec {
    /// Erase blocks of a zone, each on another unit of the vSSD; absent: one on each unit.
    #[cfg_attr(feature = "clap", arg(id = "zone_units", long = "zone-units"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u16>,
    /// Zones that may be active at once; absent: 14, or as many as staging memory allows.
    #[cfg_attr(feature = "clap", arg(id = "active_zones", long = "active-zones"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<u32>,
    /// Zones that may be open at once; absent: as many as may be active.
    #[cfg_attr(feature = "clap", arg(id = "open_zones", long = "open-zones"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<u32>,
    /// Size of a zone random write area (ZRWA), as in `1 MiB`; absent: zones have none.
    #[cfg_attr(feature = "clap", arg(id = "random_area", long = "random-area"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_area: Option<Size>,
    /// Bytes of a zone descriptor extension, a multiple of 64 up to 4096; absent: zones have none.
    #[cfg_attr(feature = "clap", arg(id = "zone_extension", long = "zone-extension"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<u32>,
}

/// The longest descriptor extension, in bytes. A choice: the journal keeps all of them.
const EXTENSION_MAX_BYTES: u32 = 4096;

impl ZoneSpec {
    /// Whether nothing was chosen.
    pub fn is_empty(&self) -> bool {
        *self == ZoneSpec::default()
    }

    /// Where nothing was chosen, as in `other`.
    pub fn or(&self, other: &ZoneSpec) -> ZoneSpec {
        ZoneSpec {
            units: self.units.or(other.units),
            active: self.active.or(other.active),
            open: self.open.or(other.open),
            random_area: self.random_area.or(other.random_area),
            extension: self.extension.or(other.extension),
        }
    }

    /// What was chosen: fields as files call them, and their values for people, in the same order for all.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let ZoneSpec { units, active, open, random_area, extension } = self;
        let number = |value: Option<u32>| value.map_or("absent".to_owned(), |value| value.to_string());
        vec![
            ("zones.units", number(units.map(u32::from))),
            ("zones.active", number(*active)),
            ("zones.open", number(*open)),
            ("zones.random_area", random_area.map_or("absent".to_owned(), Size::exact)),
            ("zones.extension", number(*extension)),
        ]
    }

    /// Whether its numbers can be; what the vSSD can give is the server's to say.
    ///
    /// # Errors
    /// Names the value, and what to write.
    pub fn check(&self) -> Result<(), String> {
        if self.units == Some(0) {
            return Err(
                "zones of 0 erase blocks hold nothing; use 1 or more, or leave it out for one on each unit"
                    .to_owned(),
            );
        }
        if self.active == Some(0) || self.open == Some(0) {
            return Err("with 0 active or open zones nothing can be written; use 1 or more, or leave it out"
                .to_owned());
        }
        if let (Some(active), Some(open)) = (self.active, self.open)
            && open > active
        {
            return Err(format!(
                "{open} open zones are more than {active} active ones; an open zone is active"
            ));
        }
        if self.random_area == Some(Size(0)) {
            return Err("a random write area of 0 bytes is none; leave it out".to_owned());
        }
        match self.extension {
            Some(bytes) if bytes == 0 || bytes > EXTENSION_MAX_BYTES || bytes % 64 != 0 => Err(format!(
                "a zone extension of {bytes} bytes; use a multiple of 64 up to {EXTENSION_MAX_BYTES}, or leave it out"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::says;

    #[test]
    fn what_cannot_be_is_refused() {
        let none = ZoneSpec::default();
        assert!(none.is_empty() && none.check().is_ok());
        says(ZoneSpec { units: Some(0), ..none }.check(), &["0 erase blocks"]);
        says(ZoneSpec { active: Some(0), ..none }.check(), &["nothing can be written"]);
        says(ZoneSpec { active: Some(2), open: Some(3), ..none }.check(), &["3 open", "2 active"]);
        says(ZoneSpec { random_area: Some(Size(0)), ..none }.check(), &["leave it out"]);
        for bytes in [0, 63, 65, 4160] {
            says(ZoneSpec { extension: Some(bytes), ..none }.check(), &["multiple of 64"]);
        }
        assert!(ZoneSpec { extension: Some(64), ..none }.check().is_ok());
    }

    #[test]
    fn what_was_not_chosen_is_taken_over() {
        let chosen = ZoneSpec { units: Some(2), ..ZoneSpec::default() };
        let other = ZoneSpec { units: Some(3), active: Some(4), ..ZoneSpec::default() };
        assert_eq!(chosen.or(&other), ZoneSpec { units: Some(2), ..other });
        assert_eq!(chosen.fields().len(), 5);
    }
}
