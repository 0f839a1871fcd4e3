//! The server's log: what `tracing` is told goes to standard error, as lines for people or as JSON objects.
//!
//! Lines are written by a thread of their own: whoever reads standard error too slowly, or not at all, must not stop a shard.
//! What finds the queue full is dropped, and the next line that gets through says how many were.

use crate::error::ServeError;
use diecut_units::changes_a_line;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait for standard error.
const LINES_WAITING_MAX: usize = 4096;
/// How long the end of the server waits for a reader of its last lines.
const LAST_LINES_PATIENCE: Duration = Duration::from_millis(500);

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// A level (`error`, `warn`, `info`, `debug`, `trace`) or a filter of `tracing-subscriber`
    /// (`info,diecut_reactor=debug`). Without it, `RUST_LOG`; without that, `info`.
    pub filter: Option<String>,
    /// How lines look.
    pub format: LogFormat,
}

/// Writes what still waits when it is dropped.
#[must_use = "the log ends with it"]
#[derive(Debug)]
pub struct LogGuard {
    lines: SyncSender<Entry>,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// Everything before it is written: say so.
    End(SyncSender<()>),
}

/// Takes lines of any thread without ever waiting.
#[derive(Clone, Debug)]
struct Lines {
    sender: SyncSender<Entry>,
    dropped: Arc<AtomicU64>,
    format: LogFormat,
    is_colored: bool,
}

impl Write for Lines {
    /// A whole line; the formatter gives one per event.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let clean = clean(line, self.format, self.is_colored);
        if self.sender.try_send(Entry::Line(clean)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A line as it is written: names and other texts from outside, which are in it, end no line and hide none. In an object they stay what
/// they are for those who parse it.
fn clean(line: &[u8], format: LogFormat, is_colored: bool) -> Vec<u8> {
    let is_right = |letter: char| !changes_a_line(letter) || (is_colored && letter == '\u{1b}');
    let Ok(text) = std::str::from_utf8(line) else { return line.to_vec() };
    let text = text.strip_suffix('\n').unwrap_or(text);
    if text.chars().all(is_right) {
        return line.to_vec();
    }
    let mut clean = String::with_capacity(line.len());
    for letter in text.chars() {
        match format {
            _ if is_right(letter) => clean.push(letter),
            LogFormat::Text => clean.extend(letter.escape_unicode()),
            LogFormat::Json => {
                let mut units = [0; 2];
                letter.encode_utf16(&mut units).iter().for_each(|unit| clean += &format!("\\u{unit:04x}"));
            }
        }
    }
    clean.push('\n');
    clean.into_bytes()
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

/// Writes lines until all senders are gone. A reader that went away is no reason to stop serving.
fn write_lines(entries: &Receiver<Entry>, dropped: &AtomicU64, mut out: impl Write, format: LogFormat) {
    for entry in entries {
        match entry {
            Entry::Line(line) => {
                let lost = dropped.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let _ = out.write_all(lost_line(lost, format).as_bytes());
                }
                let _ = out.write_all(&line);
            }
            Entry::End(done) => {
                let _ = out.flush();
                let _ = done.try_send(());
            }
        }
    }
}

fn lost_line(lost: u64, format: LogFormat) -> String {
    let message = format!("{lost} lines of the log were dropped: standard error was read too slowly");
    match format {
        LogFormat::Text => format!("WARN {message}\n"),
        LogFormat::Json => format!("{{\"level\":\"WARN\",\"fields\":{{\"message\":\"{message}\"}}}}\n"),
    }
}

/// The filter, and where it was said, for a refusal.
fn filter_of(config: &LogConfig) -> Result<EnvFilter, ServeError> {
    let (place, text) = match (&config.filter, std::env::var("RUST_LOG")) {
        (Some(filter), _) => ("--log", filter.clone()),
        (None, Ok(filter)) if !filter.is_empty() => ("RUST_LOG", filter),
        (None, _) => ("--log", "info".to_owned()),
    };
    let refuse = |error: String| {
        ServeError::Setup(format!(
            "{place} \"{text}\": {error}; write a level (error, warn, info, debug, trace or off), or a filter such as \
             info,diecut_reactor=debug"
        ))
    };
    if let Some(word) = text.split(',').map(str::trim).find(|word| !is_level_or_place(word)) {
        return Err(refuse(format!("\"{word}\" is no level")));
    }
    EnvFilter::try_new(&text).map_err(|error| refuse(error.to_string()))
}

/// A word alone that is no level is the name of a place to a filter, which shows nothing else: `warning` would show nothing at all.
fn is_level_or_place(word: &str) -> bool {
    word.contains(['=', '[', ']'])
        || word.starts_with("diecut")
        || word.parse::<LevelFilter>().is_ok_and(|_| !word.is_empty())
}

/// Sends what `tracing` is told to standard error from now on, until the guard is dropped.
///
/// # Errors
/// Names the filter that cannot be read. A process has one log: the second call is refused.
pub fn start(config: &LogConfig) -> Result<LogGuard, ServeError> {
    let filter = filter_of(config)?;
    let (sender, entries) = sync_channel(LINES_WAITING_MAX);
    let dropped = Arc::new(AtomicU64::new(0));
    let is_colored = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let format = config.format;
    let lines = Lines { sender: sender.clone(), dropped: Arc::clone(&dropped), format, is_colored };
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines).with_ansi(is_colored);
    let installed = match config.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    };
    installed.map_err(|error| ServeError::Setup(format!("the log cannot be started: {error}")))?;
    let named = std::thread::Builder::new().name("log".to_owned());
    named.spawn(move || write_lines(&entries, &dropped, std::io::stderr(), format))?;
    Ok(LogGuard { lines: sender })
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.lines.try_send(Entry::End(done)).is_ok() {
            let _ = written.recv_timeout(LAST_LINES_PATIENCE);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let config = |filter: &str| LogConfig { filter: Some(filter.to_owned()), ..LogConfig::default() };
        assert!(filter_of(&config("warn,diecut_reactor=debug")).is_ok());
        let refused = filter_of(&config("diecut_reactor=loud")).unwrap_err().to_string();
        assert!(
            refused.contains("--log \"diecut_reactor=loud\"") && refused.contains("write a level"),
            "{refused}"
        );
    }

    /// Goal: a log that nobody reads stops nobody, and says afterwards what it did not keep. Method: a queue of two lines
    /// without a writer takes five; then it is written.
    #[test]
    fn lines_that_find_the_queue_full_are_counted() {
        let (sender, entries) = sync_channel(2);
        let dropped = Arc::new(AtomicU64::new(0));
        let (format, is_colored) = (LogFormat::Text, false);
        let mut lines = Lines { sender, dropped: Arc::clone(&dropped), format, is_colored };
        for number in 0..5 {
            lines.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
        drop(lines);
        let mut written = Vec::new();
        write_lines(&entries, &dropped, &mut written, LogFormat::Text);
        let text = String::from_utf8(written).unwrap();
        let all: Vec<&str> = text.lines().collect();
        assert!(matches!(all[..], [lost, "line 0", "line 1"] if lost.contains("3 lines")), "{text}");
    }

    /// Goal: no text within a line can end it, hide it or turn it round, and objects stay objects with the same text.
    #[test]
    fn a_line_cannot_be_forged() {
        let text = |line: &str| String::from_utf8(clean(line.as_bytes(), LogFormat::Text, false)).unwrap();
        assert_eq!(text("WARN name \u{fc}\n"), "WARN name \u{fc}\n");
        assert_eq!(text("WARN a\nINFO b\0\u{1b}\u{202e}\n"), "WARN a\\u{a}INFO b\\u{0}\\u{1b}\\u{202e}\n");
        let object = "{\"name\":\"a\u{7f}\u{202e}\u{e0001}\"}\n";
        let json = clean(object.as_bytes(), LogFormat::Json, false);
        assert!(json.is_ascii());
        let parse = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
        assert_eq!(parse(&json), parse(object.as_bytes()));
    }

    #[test]
    fn the_line_about_lost_lines_is_json_where_lines_are() {
        let line: serde_json::Value = serde_json::from_str(&lost_line(7, LogFormat::Json)).unwrap();
        assert!(line["fields"]["message"].as_str().unwrap().starts_with("7 lines"));
    }
}
