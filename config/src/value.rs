//! Readers of values common to all files: strings, integers, words.
//!
//! Each reader takes one value and returns its meaning, or a complaint that names the error and the form expected.

use toml::de::DeValue;

use crate::code::{Code, Kind};
use crate::reader::{Complaint, wrong_type};
use crate::word;

/// Result of reading a value, or the complaint about it.
pub type Read<T, C = Code> = Result<T, Complaint<C>>;

/// Reads a string.
pub fn text<'v, C: Kind>(value: &'v DeValue<'_>) -> Read<&'v str, C> {
    match value {
        DeValue::String(text) => Ok(text),
        other => Err(wrong_type("a string", other)),
    }
}

/// Reads a string into an owned one.
pub fn owned<C: Kind>(value: &DeValue<'_>) -> Read<String, C> {
    text(value).map(str::to_owned)
}

/// Reads a Boolean: `yes` for `true`, `no` for `false`.
pub fn flag<T, C: Kind>(value: &DeValue<'_>, yes: T, no: T) -> Read<T, C> {
    match value {
        DeValue::Boolean(given) => Ok(if *given { yes } else { no }),
        other => Err(wrong_type("true or false", other)),
    }
}

/// Reads an integer from `least` to `most`.
pub fn number<C: Kind>(value: &DeValue<'_>, least: u64, most: u64) -> Read<u64, C> {
    let DeValue::Integer(integer) = value else { return Err(wrong_type("an integer", value)) };
    let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
    match number.and_then(|number| u64::try_from(number).ok()) {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(Complaint::new(Code::BadNumber, format!("{integer} is out of range"))
            .hint(format!("from {least} to {most}"))),
    }
}

/// Reads one of `words`.
pub fn one_of<T: Clone, C: Kind>(value: &DeValue<'_>, words: &[(&str, T)]) -> Read<T, C> {
    let text = text(value)?;
    word::meaning(words, text).ok_or_else(|| {
        let known = words.iter().map(|(word, _)| *word);
        let listed = || format!("one of: {}", known.clone().collect::<Vec<_>>().join(", "));
        let hint = word::did_you_mean(text, known.clone(), listed);
        Complaint::new(Code::UnknownWord, format!("unknown word \"{text}\"")).hint(hint)
    })
}
