//! Identify pages of the Zoned Namespace Command Set.

use crate::config::NamespaceConfig;
use crate::controller::Answer;
use diecut_namespace::contract::ZoneProperties;
use diecut_nvme::Status;
use diecut_nvme::identify::{IDENTIFY_SIZE_BYTES, cns};
use diecut_nvme::zns::{
    IdentifyZonedNamespace, LbaFormatExtension, OZCS_RANDOM_AREA, OZCS_READ_ACROSS, ZRWACAP_EXPLICIT_FLUSH,
};
use zerocopy::IntoBytes;

/// The page of a namespace, or of the controller, for this command set (ZNS 1.1 figures 49 and 51).
pub(super) fn identify(cns: u8, namespace: Result<Option<&NamespaceConfig>, Answer>) -> Answer {
    let zeros = || Answer::Data(vec![0; IDENTIFY_SIZE_BYTES]);
    if cns == cns::COMMAND_SET_CONTROLLER {
        // ZASL 0: an append may be as large as any transfer.
        return zeros();
    }
    match namespace {
        Ok(Some(namespace)) => match &namespace.properties.zones {
            Some(zones) => Answer::Data(page_of(zones).as_bytes().to_vec()),
            None => Answer::Fail(Status::INVALID_FIELD.do_not_retry()),
        },
        Ok(None) => zeros(),
        Err(answer) => answer,
    }
}

fn page_of(zones: &ZoneProperties) -> IdentifyZonedNamespace {
    let has_random_areas = zones.random_lbas > 0;
    let mut page = IdentifyZonedNamespace {
        ozcs: (OZCS_READ_ACROSS | if has_random_areas { OZCS_RANDOM_AREA } else { 0 }).into(),
        mar: (zones.active_max - 1).into(),
        mor: (zones.open_max - 1).into(),
        ..IdentifyZonedNamespace::default()
    };
    if has_random_areas {
        page.numzrwa = zones.active_max.into();
        page.zrwafg = (zones.commit_lbas as u16).into();
        page.zrwasz = (zones.random_lbas as u16).into();
        page.zrwacap = ZRWACAP_EXPLICIT_FLUSH;
    }
    page.lbafe[0] = LbaFormatExtension::new(zones.size_lbas(), (zones.extension_size_bytes / 64) as u8);
    page
}
