//! Results on standard output: the one way there of every command. What cannot be written ends the program with a word on why.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Writes to standard output and sees that it arrives. If whoever read it is gone (`| head`), the program ends as programs do
/// then; if it cannot be written (a full disk), it ends with 1 and an error on standard error.
pub fn write(text: Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        if error.kind() != ErrorKind::BrokenPipe {
            let _ = writeln!(std::io::stderr(), "error: the output cannot be written: {error}");
            std::process::exit(1);
        }
        // What a shell sees of a program that SIGPIPE ended.
        std::process::exit(141);
    }
}

/// Prints a line, or several, as `println!` does, which would panic where nothing can be written.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}
