//! Checks of the repository itself: `cargo xtask arrows`, `cargo xtask tidy`, `cargo xtask reference`, `cargo xtask house`, `cargo xtask check`; the fuzz targets:
//! `cargo xtask fuzz`; the pages as a book: `cargo xtask book`; and the stages of `make test`, `cargo xtask ci`, and of `make night`, `cargo xtask night`.

#![forbid(unsafe_code)]

mod arrows;
mod book;
mod check;
mod fuzz;
mod house;
mod interleavings;
mod pages;
mod planted;
mod reference;
mod stages;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask arrows|tidy|planted|reference|house|check|book|fuzz|interleavings|ci|night
  arrows   direct dependencies between rooms follow the table of ARCHITECTURE.md
  tidy     text files are ASCII, links of pages resolve, what pages name exists, invariants are numbered alike on pages and in code
  reference  parts of pages that are drawn from the code are as it is; [--write]: draws them again
  planted  a planted bug wraps one call or one value, at one place; a part of tidy
  house    [--all]: how rooms are built inside, and whether one got worse; [--write]: takes today's figures as the worst allowed
  check    format, lints, documentation, arrows, tidy, house
  book     makes HTML of the pages in target/book/html and follows its links; needs scripts/setup.sh book
  fuzz     [--seconds N] [--seed N] [TARGET...]: builds and runs the fuzz targets, 10 s each
  interleavings  what threads share without a lock, under every order of their steps
  ci       every stage of make test, with a table of what each took
  night    [--fuzz-minutes N] [--seeds N] [--first-seed N]: the stages of make night";

fn main() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["arrows"] => arrows::check(&root),
        ["tidy"] => tidy::check(&root),
        ["reference", rest @ ..] => reference::run(&root, rest),
        ["planted"] => planted::check(&root),
        ["house", rest @ ..] => house::run(&root, rest),
        ["check"] => check::all(&root),
        ["book"] => book::build(&root),
        ["fuzz", rest @ ..] => fuzz::Wish::parse(rest).and_then(|wish| fuzz::run(&root, &wish)),
        ["interleavings"] => interleavings::run(&root),
        ["ci"] => stages::all(&root),
        ["night", rest @ ..] => stages::night(&root, rest),
        _ => Err(vec![USAGE.to_string()]),
    };
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            for problem in problems {
                eprintln!("{problem}");
            }
            ExitCode::FAILURE
        }
    }
}
