//! Masking of secrets in texts that are shown: values of keys such as `key = "..."`, and long runs of hexadecimal digits, wherever a slip of
//! the author has put them.
//!
//! A text is searched as it stands, for one with errors is no TOML. Too much is masked rather than too little. A mask has the length of
//! what it covers, so that lines and columns stay.

use std::ops::Range;

/// Shortest run of hexadecimal digits that is masked wherever it stands: a key of DES. No address, MAC address or word of a policy has one.
const RUN: usize = 16;

/// Digits of the largest number of 64 bits: a longer run of decimal digits alone is no number.
const NUMBER: usize = 20;

/// Stands for a character of a secret.
const MASK: char = '*';

/// Values of the keys named `keys` in a text that looks like TOML, in bytes.
fn values(text: &str, keys: &[&str]) -> Vec<Range<usize>> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while bytes.get(at).is_some_and(|byte| is_word(*byte)) {
            at += 1;
        }
        if at == start {
            at += 1;
            continue;
        }
        let word = text.get(start..at).unwrap_or_default();
        if keys.iter().any(|key| key.eq_ignore_ascii_case(word)) {
            let value = value_behind(text, at);
            at = value.as_ref().map_or(at, |value| value.end);
            found.extend(value);
        }
    }
    found
}

/// Value of a key that ends at byte `at`, if there is one.
fn value_behind(text: &str, at: usize) -> Option<Range<usize>> {
    let rest = text.get(at..)?;
    let behind = rest.strip_prefix(['"', '\'']).unwrap_or(rest).trim_start_matches([' ', '\t']);
    let value = behind.strip_prefix(['=', ':'])?.trim_start_matches([' ', '\t', '=']);
    // A value belongs on the line of its key; a string on the next is one by mistake.
    let below = value.trim_start();
    let value = if below.starts_with(['"', '\'']) { below } else { value };
    let start = text.len() - value.len();
    Some(start..start + length(value))
}

/// Bytes of the value that a text begins with; of one without an end, those of its line.
fn length(value: &str) -> usize {
    let line = value.find('\n').unwrap_or(value.len());
    let behind = |from: usize, end: &str| {
        value.get(from..).and_then(|rest| rest.find(end)).map_or(value.len(), |found| from + found)
    };
    match value.as_bytes() {
        [first @ (b'"' | b'\''), second, third, ..] if first == second && second == third => {
            behind(3, value.get(..3).unwrap_or_default())
        }
        [b'[', ..] => behind(1, "]"),
        [quote @ (b'"' | b'\''), rest @ ..] => {
            let mut is_escaped = false;
            let is_end = |byte: &u8| {
                let is_end = *byte == *quote && !is_escaped;
                is_escaped = *byte == b'\\' && *quote == b'"' && !is_escaped;
                is_end
            };
            rest.iter().position(is_end).map_or(line, |end| (end + 1).min(line))
        }
        _ => value.find([',', '}', '#', '\n']).unwrap_or(value.len()),
    }
}

/// The text with the values of these keys of a file masked, and all long runs of hexadecimal digits.
pub(crate) fn masked(text: &str, keys: &[&str]) -> String {
    mask(text, values(text, keys).into_iter().chain(runs(text)))
}

/// A message with all long runs of hexadecimal digits masked: it may repeat a word of a file that is a key.
pub fn masked_message(message: String) -> String {
    match &runs(&message)[..] {
        [] => message,
        runs => mask(&message, runs.iter().cloned()),
    }
}

/// The text with letters and digits of these stretches masked: nothing else is a key's.
fn mask(text: &str, stretches: impl Iterator<Item = Range<usize>>) -> String {
    let mut is_masked = vec![false; text.len()];
    stretches.for_each(|stretch| is_masked.get_mut(stretch).unwrap_or_default().fill(true));
    let shown = |(at, character): (usize, char)| match is_masked.get(at) {
        Some(true) if character.is_ascii_alphanumeric() => MASK,
        _ => character,
    };
    text.char_indices().map(shown).collect()
}

/// Long runs of hexadecimal digits, but for decimal numbers.
fn runs(text: &str) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut start = 0;
    for run in text.split(|character: char| !character.is_ascii_hexdigit()) {
        let end = start + run.len();
        let is_number = run.len() <= NUMBER && run.bytes().all(|byte| byte.is_ascii_digit());
        if run.len() >= RUN && !is_number {
            runs.push(start..end);
        }
        start = end + text.get(end..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::{masked, masked_message};

    /// The text as it is shown, with the values of `key` and `auth-key` masked.
    fn shown(text: &str) -> String {
        let shown = masked(text, &["key", "auth-key"]);
        assert_eq!(shown.len(), text.len());
        shown
    }

    #[test]
    fn values_are_masked_however_they_are_written() {
        for (text, wanted) in [
            ("key = \"c0ffee\"\nspi = 5", "key = \"******\"\nspi = 5"),
            ("key='c0ffee'", "key='******'"),
            ("  \"auth-key\"\t=  \"0xc0\" # a note", "  \"auth-key\"\t=  \"****\" # a note"),
            ("'key' = \"c0\"", "'key' = \"**\""),
            ("{ spi = 5, key = \"c0\", esn = true }", "{ spi = 5, key = \"**\", esn = true }"),
            ("sa.key = \"c0\"", "sa.key = \"**\""),
            ("key = \"\"\"\nc0\nff\"\"\"\nspi = 5", "key = \"\"\"\n**\n**\"\"\"\nspi = 5"),
            ("key = '''c0\nff\n", "key = '''**\n**\n"),
            ("key = [\"c0\",\n\"ff\"]\nspi = 5", "key = [\"**\",\n\"**\"]\nspi = 5"),
            ("key = c0ffee, spi = 5", "key = ******, spi = 5"),
            ("key = \"c0\\\"ff\" # c0", "key = \"**\\\"**\" # c0"),
            ("key = \"c0ff\nspi = 5", "key = \"****\nspi = 5"),
            ("key =\n\"c0\"\nspi = 5", "key =\n\"**\"\nspi = 5"),
            ("key =\nspi = 5", "key =\nspi = 5"),
            ("KEY == \"\\u0063\u{e9}\"", "KEY == \"\\*****\u{e9}\""),
            ("# key: c0 ff ee", "# key: ** ** **"),
            ("key-file = \"keys/b\"", "key-file = \"keys/b\""),
            ("keys = \"ike\"\nmonkey = \"c0\"", "keys = \"ike\"\nmonkey = \"c0\""),
        ] {
            assert_eq!(shown(text), wanted);
        }
    }

    #[test]
    fn long_runs_of_digits_are_masked_wherever_they_are() {
        let key = "00112233445566778899aabbccddeeff";
        for text in [format!("kye = \"{key}\""), format!("spi = 5 {key}"), format!("\u{e9}{key}0X{key}")] {
            assert!(!shown(&text).contains(key), "{}", shown(&text));
        }
        let plain =
            "2001:db8:1122:3344:5566:7788:99aa:bbcc 02:00:00:00:00:01 18446744073709551615 \u{e9} deadbeef";
        assert_eq!((shown(plain), masked_message(plain.to_owned())), (plain.to_owned(), plain.to_owned()));
        assert_eq!(
            masked_message(format!("unknown word \"{key}\"")),
            format!("unknown word \"{}\"", "*".repeat(32))
        );
    }
}
