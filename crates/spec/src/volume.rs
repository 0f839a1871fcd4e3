//! Volumes.

use crate::name::check_name;
use crate::size::{Size, perhaps};
use crate::{Nguid, ZoneSpec};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A volume: what a namespace shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// Its name, as of a tenant.
    pub name: String,
    /// vSSD it lives on.
    #[cfg_attr(feature = "clap", arg(long))]
    pub vssd: String,
    /// Size that a host sees, as in `16 GiB`; a multiple of 4096 bytes.
    #[cfg_attr(feature = "clap", arg(long))]
    pub size: Size,
    /// UUID of the namespace; made by the server if absent, and kept.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// NGUID of the namespace, 32 hexadecimal digits; made by the server if absent, and kept.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nguid: Option<Nguid>,
    /// What its zones are like, on a vSSD whose use is zones.
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(default, skip_serializing_if = "ZoneSpec::is_empty")]
    pub zones: ZoneSpec,
    /// Placement handles of its vSSD that its hosts may choose among, as in `[0, 2]`, on the command line `0,2`: the first one is the one of writes that choose none. If
    /// absent, one of a vSSD that has some is given to it.
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ','))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<u16>,
}

/// No volume can be smaller, in bytes: one block of a host.
const VOLUME_SIZE_MIN: Size = Size(4096);
/// Placement handles that a vSSD can have.
const PLACEMENT_HANDLES_MAX: u16 = 16;
/// No volume can be larger, in bytes: its blocks are counted in 32 bits.
pub const VOLUME_SIZE_MAX: Size = Size((u32::MAX as u64 - 1) * 4096);

impl VolumeSpec {
    /// A volume whose identities the server makes.
    pub fn new(name: &str, vssd: &str, size: Size) -> VolumeSpec {
        VolumeSpec {
            name: name.to_owned(),
            vssd: vssd.to_owned(),
            size,
            uuid: None,
            nguid: None,
            zones: ZoneSpec::default(),
            placement: Vec::new(),
        }
    }

    /// Where nothing was chosen, as in `other`.
    pub fn or(&self, other: &VolumeSpec) -> VolumeSpec {
        // Without `..`, so that a new field cannot be forgotten.
        let VolumeSpec { name, vssd, size, uuid, nguid, zones, placement } = self;
        VolumeSpec {
            name: name.clone(),
            vssd: vssd.clone(),
            size: *size,
            uuid: uuid.or(other.uuid),
            nguid: nguid.or(other.nguid),
            zones: zones.or(&other.zones),
            placement: if placement.is_empty() { other.placement.clone() } else { placement.clone() },
        }
    }

    /// What was chosen: fields as files call them, and their values for people, in the same order for all.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let VolumeSpec { name: _, vssd, size, uuid, nguid, zones, placement: _ } = self;
        let mut fields = vec![
            ("vssd", vssd.clone()),
            ("size", size.exact()),
            ("uuid", uuid.map_or(String::new(), |id| id.to_string())),
            ("nguid", nguid.map_or(String::new(), |id| id.to_string())),
        ];
        fields.extend(zones.fields());
        fields.push(("placement", self.placement_text()));
        fields
    }

    /// Whether it can be; what the vSSD can give is the server's to say.
    ///
    /// # Errors
    /// Names the volume, the value, and what to write.
    pub fn check(&self) -> Result<(), String> {
        check_name("volume", &self.name)?;
        self.zones.check().map_err(|error| format!("volume \"{}\": {error}", self.name))?;
        self.check_placement()?;
        self.check_slips()
    }

    /// Whether its placement handles can be those of some vSSD.
    fn check_placement(&self) -> Result<(), String> {
        let (name, all) = (&self.name, &self.placement);
        if let Some(handle) = all.iter().find(|handle| **handle >= PLACEMENT_HANDLES_MAX) {
            return Err(format!(
                "volume \"{name}\": placement names handle {handle}, and a vSSD has at most {PLACEMENT_HANDLES_MAX}, counted from 0"
            ));
        }
        let twice = all.iter().enumerate().find(|(at, handle)| all[..*at].contains(handle));
        match twice {
            Some((_, handle)) => {
                Err(format!("volume \"{name}\": placement names handle {handle} twice; leave one out"))
            }
            None => Ok(()),
        }
    }

    /// What was chosen of its placement, for people.
    fn placement_text(&self) -> String {
        match self.placement[..] {
            [] => "given".to_owned(),
            _ => self.placement.iter().map(u16::to_string).collect::<Vec<_>>().join(","),
        }
    }

    /// Whether it is not larger than the most there is. What its vSSD has left says more, and is looked at before.
    ///
    /// # Errors
    /// Names the volume, its size, and the most there is.
    pub fn check_most(&self) -> Result<(), String> {
        if self.size <= VOLUME_SIZE_MAX {
            return Ok(());
        }
        let (name, size, most) = (&self.name, self.size.exact(), VOLUME_SIZE_MAX.bytes());
        Err(format!("volume \"{name}\": a size of {size} is above the most there is, {most} bytes"))
    }

    /// Whether its size can be a slip: too small, or not whole blocks.
    ///
    /// # Errors
    /// Names the volume, the value, and what to write.
    pub fn check_slips(&self) -> Result<(), String> {
        let (name, size) = (&self.name, self.size.exact());
        if self.size < VOLUME_SIZE_MIN {
            return Err(format!(
                "volume \"{name}\": a size of {size} is below {VOLUME_SIZE_MIN}, the least there is{}",
                perhaps(self.size, "G")
            ));
        }
        let over_bytes = self.size.bytes() % VOLUME_SIZE_MIN.bytes();
        if over_bytes != 0 {
            let below = Size(self.size.bytes() - over_bytes);
            let near = |size: Size| format!("{} bytes ({})", size.bytes(), size.exact());
            let above = below.bytes().checked_add(VOLUME_SIZE_MIN.bytes());
            let above = above.map_or(String::new(), |above| format!(" or {}", near(Size(above))));
            return Err(format!(
                "volume \"{name}\": a size of {} bytes is no multiple of 4096 bytes; the nearest are {}{above}, where it is not for whole \
                 zones or chunks",
                self.size.bytes(),
                near(below)
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::says;

    #[test]
    fn sizes_that_cannot_be_are_refused_with_what_may_be_meant() {
        let volume = |size| VolumeSpec {
            name: "v".into(),
            vssd: "a".into(),
            size: Size(size),
            uuid: None,
            nguid: None,
            zones: ZoneSpec::default(),
            placement: Vec::new(),
        };
        assert_eq!(volume(4096).check(), Ok(()));
        let most = volume(VOLUME_SIZE_MAX.bytes());
        assert_eq!((most.check(), most.check_most()), (Ok(()), Ok(())));
        says(volume(16).check(), &["volume \"v\"", "write 16G"]);
        says(volume(0).check(), &["below 4 KiB"]);
        says(volume(10_000).check(), &["10000 bytes", "8192 bytes (8 KiB) or 12288 bytes (12 KiB)"]);
        says(volume(u64::MAX).check(), &["no multiple of 4096"]);
        let above = volume(VOLUME_SIZE_MAX.bytes() + 4096);
        says(above.check_most(), &["above the most"]);
        assert_eq!(above.check(), Ok(()), "the vSSD says how much is left");
    }

    #[test]
    fn placement_handles_that_cannot_be_are_refused() {
        let placed = |placement: &[u16]| VolumeSpec {
            placement: placement.to_vec(),
            ..VolumeSpec::new("v", "a", Size(4096))
        };
        assert_eq!((placed(&[]).check(), placed(&[15, 0, 3]).check()), (Ok(()), Ok(())));
        says(placed(&[0, 16]).check(), &["volume \"v\"", "placement names handle 16", "at most 16"]);
        says(placed(&[2, 0, 2]).check(), &["volume \"v\"", "placement names handle 2 twice"]);
        assert_eq!(
            (placed(&[]).placement_text(), placed(&[2, 0]).placement_text()),
            ("given".into(), "2,0".into())
        );
    }

    #[test]
    fn unknown_fields_are_named() {
        let error = serde_json::from_str::<VolumeSpec>(r#"{"name":"a","vssd":"b","size":"1 GiB","sise":1}"#)
            .unwrap_err();
        assert!(error.to_string().contains("sise"), "{error}");
    }
}
