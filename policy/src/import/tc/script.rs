//! Commands of shell scripts and of `tc -batch`: lines to words, with the variables that the script itself sets.
//!
//! Loops, conditions and substitutions are a shell's work: commands that need them are reported as such.

use std::collections::HashMap;

/// Longest value of a variable, in bytes: variables of variables grow without bound.
const LONGEST: usize = 4_096;

/// Variables of a script.
#[derive(Debug, Default)]
pub(super) struct Variables(HashMap<String, String>);

/// A simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Its words.
    Words(Vec<String>),
    /// A command with a substitution or a variable that the script does not set; the words that are certain.
    Unsure(Vec<String>),
}

impl Command {
    /// Returns the words, those that are certain at least.
    pub(super) fn words(&self) -> &[String] {
        match self {
            Command::Words(words) | Command::Unsure(words) => words,
        }
    }
}

/// State of the command that is being split.
#[derive(Default)]
struct Splitter {
    commands: Vec<Command>,
    words: Vec<String>,
    word: Option<String>,
    is_unsure: bool,
    /// True if the next word is the file of a redirection.
    is_redirected: bool,
}

/// Splits a line into its commands.
pub(super) fn commands(line: &str, variables: &mut Variables) -> Vec<Command> {
    let mut splitter = Splitter::default();
    let mut chars = line.chars().peekable();
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\'', None) => {
                quote = Some('\'');
                splitter.word.get_or_insert_default();
            }
            ('"', None) => {
                quote = Some('"');
                splitter.word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            (c, Some('\'')) => splitter.push(c),
            ('\\', _) => {
                if let Some(next) = chars.next() {
                    splitter.push(next);
                }
            }
            ('$', _) => {
                let rest: String = chars.clone().collect();
                match variable(&rest) {
                    Some((name, length)) => {
                        chars.by_ref().take(length).for_each(|_| {});
                        splitter.expand(variables.0.get(name), quote.is_some());
                    }
                    None => {
                        splitter.is_unsure = true;
                        splitter.push('$');
                    }
                }
            }
            ('`', _) => {
                splitter.is_unsure = true;
                splitter.push(c);
            }
            (c, Some(_)) => splitter.push(c),
            ('#', None) if splitter.word.is_none() => break,
            (';' | '|' | '&', None) => {
                // `2>&1` is part of a redirection.
                if c == '&' && splitter.is_redirected && splitter.word.is_none() {
                    continue;
                }
                splitter.end_command(variables);
            }
            ('>' | '<', None) => {
                // The number before is a file's.
                if splitter.word.as_ref().is_some_and(|word| word.chars().all(|c| c.is_ascii_digit())) {
                    splitter.word = None;
                }
                splitter.end_word();
                splitter.is_redirected = true;
            }
            (c, None) if c.is_whitespace() => splitter.end_word(),
            (c, None) => splitter.push(c),
        }
    }
    if quote.is_some() {
        splitter.is_unsure = true;
    }
    splitter.end_command(variables);
    splitter.commands
}

impl Splitter {
    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    /// Appends the value of a variable: outside quotes, its words.
    fn expand(&mut self, value: Option<&String>, is_quoted: bool) {
        let Some(value) = value else {
            self.is_unsure = true;
            self.word.get_or_insert_default().push('$');
            return;
        };
        if is_quoted {
            self.word.get_or_insert_default().push_str(value);
            return;
        }
        let mut is_first = true;
        for part in value.split_whitespace() {
            if !is_first {
                self.end_word();
            }
            self.word.get_or_insert_default().push_str(part);
            is_first = false;
        }
    }

    fn end_word(&mut self) {
        if let Some(word) = self.word.take() {
            if self.is_redirected {
                self.is_redirected = false;
            } else {
                self.words.push(word);
            }
        }
    }

    fn end_command(&mut self, variables: &mut Variables) {
        self.end_word();
        self.is_redirected = false;
        let mut words = std::mem::take(&mut self.words);
        let is_unsure = std::mem::take(&mut self.is_unsure);
        let is_declared = words
            .first()
            .is_some_and(|word| matches!(word.as_str(), "export" | "local" | "readonly" | "declare"));
        if is_declared {
            words.remove(0);
        }
        while let Some((name, value)) = words.first().and_then(|word| assignment(word)) {
            let (name, value) = (name.to_owned(), value.to_owned());
            if is_unsure || value.len() > LONGEST {
                variables.0.remove(&name);
            } else {
                variables.0.insert(name, value);
            }
            words.remove(0);
        }
        if !words.is_empty() && !is_declared {
            self.commands.push(if is_unsure { Command::Unsure(words) } else { Command::Words(words) });
        }
    }
}

/// Splits `NAME=value`.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

/// Name of the variable after a `$`, and the number of characters that it takes; `None` for anything else that `$` begins.
fn variable(rest: &str) -> Option<(&str, usize)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(braced) = rest.strip_prefix('{') {
        let (name, _) = braced.split_once('}')?;
        return (!name.is_empty() && name.chars().all(is_part)).then_some((name, name.chars().count() + 2));
    }
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    (end > 0).then_some((&rest[..end], end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(lines: &[&str]) -> Vec<Command> {
        let mut variables = Variables::default();
        lines.iter().flat_map(|line| commands(line, &mut variables)).collect()
    }

    fn words(text: &str) -> Command {
        Command::Words(text.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn lines_are_split_as_a_shell_does() {
        assert_eq!(
            split(&["tc qdisc del dev eth0 root 2>/dev/null || true"]),
            [words("tc qdisc del dev eth0 root"), words("true")]
        );
        assert_eq!(split(&["tc a > /dev/null 2>&1; tc b # c"]), [words("tc a"), words("tc b")]);
        assert_eq!(
            split(&["DEV=eth0 RATE=20", "export TC=/sbin/tc", "$TC qdisc add dev ${DEV} rate ${RATE}mbit"]),
            [words("/sbin/tc qdisc add dev eth0 rate 20mbit")]
        );
        assert_eq!(split(&["OPTS=\"rate 1mbit\"", "tc x $OPTS"]), [words("tc x rate 1mbit")]);
        assert_eq!(
            split(&["echo 'a;b' \"c d\""]),
            [Command::Words(["echo", "a;b", "c d"].map(str::to_owned).to_vec())]
        );
    }

    #[test]
    fn what_only_a_shell_knows_is_unsure() {
        for line in [
            "tc class add rate $1kbit",
            "tc x $((2 * 3))kbit",
            "tc x `cat rate`",
            "tc x $(cat rate)",
            "tc 'x",
            "R=$(cat r); tc $R",
        ] {
            let all = split(&[line]);
            assert!(all.iter().any(|command| matches!(command, Command::Unsure(_))), "{line}: {all:?}");
        }
    }
}
