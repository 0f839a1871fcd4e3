//! What disks are told in words: by who types, and by scripts.

use crate::disks::{Disks, FailedFlush};

/// What can be said.
const USAGE: &str =
    "cut [SEED] | cut-after COMMANDS | on | stats | lie on|off | fail-flush forget|drop|keep | stall | go";

/// Does what a line says, and gives the answer: a line that begins with `ok` or `error`.
pub fn answer(disks: &Disks, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match carry_out(disks, &words) {
        Ok(said) => format!("ok {said}").trim_end().to_owned(),
        Err(why) => format!("error {why}"),
    }
}

fn carry_out(disks: &Disks, words: &[&str]) -> Result<String, String> {
    match words {
        ["cut"] => return cut(disks, None),
        ["cut", seed] => return cut(disks, Some(number(seed)?)),
        ["cut-after", commands] => disks.cut_after(number(commands)?),
        ["on"] => disks.power_on(),
        ["stats"] => return Ok(disks.statistics().to_string()),
        ["lie", "on"] => disks.lie(true),
        ["lie", "off"] => disks.lie(false),
        ["fail-flush", "forget"] => disks.fail_next_flush(FailedFlush::Forgets),
        ["fail-flush", "drop"] => disks.fail_next_flush(FailedFlush::Drops),
        ["fail-flush", "keep"] => disks.fail_next_flush(FailedFlush::Keeps),
        ["stall"] => disks.stall(true),
        ["go"] => disks.stall(false),
        _ => return Err(format!("what is understood is {USAGE}")),
    }
    Ok(String::new())
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn cut(disks: &Disks, seed: Option<u64>) -> Result<String, String> {
    disks.cut(seed).map(|report| report.to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::Options;

    #[test]
    fn what_is_said_is_done_or_refused() {
        let disks = Disks::new(&Options { drives: vec![("a".to_owned(), 4096)], ..Options::default() });
        let disks = disks.unwrap();
        assert_eq!(answer(&disks, "cut 7"), "ok cut=1 seed=7 writes=0 kept=0 torn=0 lost=0");
        assert!(disks.lookup("a".as_ref()).is_err(), "no power");
        assert_eq!(answer(&disks, " on "), "ok");
        assert!(disks.lookup("a".as_ref()).is_ok());
        assert!(answer(&disks, "stats").starts_with("ok reads=0 "));
        for line in ["cut-after 9", "lie on", "lie off", "fail-flush forget", "stall", "go"] {
            assert_eq!(answer(&disks, line), "ok", "{line}");
        }
        for line in ["", "cut now", "lie", "fail-flush", "fail-flush twice"] {
            assert!(answer(&disks, line).starts_with("error "), "{line}");
        }
    }
}
