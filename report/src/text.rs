//! Text of a report, in tones: a terminal shows them by colours, a page by styles, and plain text not at all.

use std::fmt;

/// Text in pieces, each with a tone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    pieces: Vec<Piece>,
}

/// Piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Tone of the piece.
    pub tone: Tone,
    /// Its characters.
    pub text: String,
}

/// Tone of a piece of text: what it is to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As the text around it.
    Plain,
    /// A heading.
    Heading,
    /// Success.
    Good,
    /// Warning.
    Care,
    /// Failure.
    Bad,
    /// Detail of less importance.
    Detail,
}

impl Tone {
    /// Name of the tone.
    pub fn name(self) -> &'static str {
        match self {
            Tone::Plain => "plain",
            Tone::Heading => "heading",
            Tone::Good => "good",
            Tone::Care => "care",
            Tone::Bad => "bad",
            Tone::Detail => "detail",
        }
    }
}

impl Text {
    /// The pieces, in order; none is empty.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Adds a piece.
    pub fn add(&mut self, tone: Tone, text: impl fmt::Display) {
        let text = text.to_string();
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.tone == tone => last.text.push_str(&text),
            _ => self.pieces.push(Piece { tone, text }),
        }
    }

    /// Adds a plain piece.
    pub fn plain(&mut self, text: impl fmt::Display) {
        self.add(Tone::Plain, text);
    }

    /// Adds a piece, and ends the line.
    pub fn line(&mut self, tone: Tone, text: impl fmt::Display) {
        self.add(tone, text);
        self.plain("\n");
    }

    /// Adds all pieces of another text.
    pub fn append(&mut self, other: Text) {
        for Piece { tone, text } in other.pieces {
            self.add(tone, text);
        }
    }
}

/// The characters, without tones.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| f.write_str(&piece.text))
    }
}

#[cfg(test)]
mod tests {
    use super::{Piece, Text, Tone};

    #[test]
    fn neighbours_of_one_tone_are_one_piece() {
        let mut text = Text::default();
        text.add(Tone::Heading, "wan");
        text.add(Tone::Detail, "");
        text.line(Tone::Heading, " tcp");
        text.plain("accept");
        let piece = |tone, text: &str| Piece { tone, text: text.to_owned() };
        assert_eq!(text.pieces(), [piece(Tone::Heading, "wan tcp"), piece(Tone::Plain, "\naccept")]);
        assert_eq!(text.to_string(), "wan tcp\naccept");
    }
}
