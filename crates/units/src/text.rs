use std::fmt::{Display, Formatter, Result, Write};

/// Characters of a text from outside that are shown.
const SHOWN_MAX: usize = 256;

/// A text from outside in a message or a line of the log: what would change how the line looks is escaped, as in Rust's literals, and
/// what is longer than 256 characters is cut.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl Display for Shown<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        for (count, letter) in self.0.chars().enumerate() {
            if count == SHOWN_MAX {
                return write!(out, "... ({} bytes)", self.0.len());
            }
            if changes_a_line(letter) {
                write!(out, "{}", letter.escape_unicode())?
            } else {
                out.write_char(letter)?
            }
        }
        Ok(())
    }
}

/// Whether a character is none to read: control characters, ends of lines, and what is invisible or turns the direction of the text
/// round (Unicode 15, classes Cc, Zl, Zp and those of Cf with an effect on their surroundings).
pub fn changes_a_line(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn texts_from_outside_stay_on_their_line() {
        let shown = |text: &str| Shown(text).to_string();
        assert_eq!(shown("disk-1 \u{fc}ber"), "disk-1 \u{fc}ber");
        assert_eq!(shown("a\nINFO b\0\u{1b}[2J\u{202e}c"), "a\\u{a}INFO b\\u{0}\\u{1b}[2J\\u{202e}c");
        let long = shown(&"x".repeat(1 << 20));
        assert_eq!(long, format!("{}... (1048576 bytes)", "x".repeat(256)));
        assert_eq!(shown(&"x".repeat(256)).len(), 256);
    }
}
