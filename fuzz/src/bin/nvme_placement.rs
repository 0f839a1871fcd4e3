//! What a host reads of data placement: configurations, usage of handles, events, and the status of handles.
#![no_main]

use diecut_fuzz::bounded;
use diecut_nvme::fdp::*;

diecut_fuzz::target!(seeds, check);

/// Which page the first byte of an input chooses.
const PAGES: u8 = 4;

fn configuration(handles: Vec<u8>) -> PlacementConfiguration {
    PlacementConfiguration {
        rgif: 1,
        volatile_cache: true,
        valid: true,
        groups: 2,
        pids_less_one: 7,
        namespaces: 1024,
        unit_bytes: 96 << 20,
        unit_seconds_max: 0,
        handles,
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let event = PlacementEvent { flags: EVENT_HAS_PID | EVENT_HAS_LOCATION, ..PlacementEvent::default() };
    let configurations =
        [configuration(vec![INITIALLY_ISOLATED; 4]), configuration(vec![PERSISTENTLY_ISOLATED; 3])];
    let pages = [
        configurations_page(&configurations),
        usage_page(&[HANDLE_USED_BY_HOST, HANDLE_UNUSED, HANDLE_USED_BY_CONTROLLER]),
        events_page([&event, &event]),
        status_page(&[HandleStatus::new(0, 3, 1 << 20), HandleStatus::new(1, 0, 9)]),
    ];
    (0..).zip(pages).map(|(kind, page)| [vec![kind], page].concat()).collect()
}

fn check(bytes: &[u8]) {
    let Some((kind, page)) = bytes.split_first() else { return };
    // Descriptors are never larger in memory than four times their bytes.
    bounded(4096 + 8 * page.len(), || match kind % PAGES {
        0 => {
            if let Ok(found) = parse_configurations(page) {
                assert!(!found.is_empty());
                // Bytes of vendors and filler are not kept; what is kept comes back.
                let again = configurations_page(&found);
                assert!(again.len() <= page.len());
                assert_eq!(parse_configurations(&again), Ok(found));
            }
        }
        1 => {
            if let Ok(found) = parse_usage(page) {
                assert_eq!(parse_usage(&usage_page(&found)), Ok(found));
            }
        }
        2 => {
            if let Ok(found) = parse_events(page) {
                assert!(found.len() <= EVENTS_MAX);
                assert_eq!(parse_events(&events_page(&found)), Ok(found));
            }
        }
        _ => {
            if let Ok(found) = parse_status(page) {
                assert_eq!(parse_status(&status_page(&found)), Ok(found));
            }
        }
    });
}
