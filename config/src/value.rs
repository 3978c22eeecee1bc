//! Values that any file may have: strings, integers, words.
//!
//! Each reader takes one value and gives what it means, or a complaint that says what is wrong and what to write
//! instead.

use toml::de::DeValue;

use crate::code::{Code, Kind};
use crate::reader::{Complaint, wrong_type};
use crate::word;

/// A value, or what is wrong with it.
pub type Read<T, C = Code> = Result<T, Complaint<C>>;

/// A string.
pub fn text<'v, C: Kind>(value: &'v DeValue<'_>) -> Read<&'v str, C> {
    match value {
        DeValue::String(text) => Ok(text),
        other => Err(wrong_type("a string", other)),
    }
}

/// A string that is kept.
pub fn owned<C: Kind>(value: &DeValue<'_>) -> Read<String, C> {
    text(value).map(str::to_owned)
}

/// `true` or `false`, as what they stand for.
pub fn flag<T, C: Kind>(value: &DeValue<'_>, yes: T, no: T) -> Read<T, C> {
    match value {
        DeValue::Boolean(given) => Ok(if *given { yes } else { no }),
        other => Err(wrong_type("true or false", other)),
    }
}

/// An integer from `least` to `most`.
pub fn number<C: Kind>(value: &DeValue<'_>, least: u64, most: u64) -> Read<u64, C> {
    let DeValue::Integer(integer) = value else { return Err(wrong_type("an integer", value)) };
    let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
    match number.and_then(|number| u64::try_from(number).ok()) {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(Complaint::new(Code::BadNumber, format!("{integer} is out of range"))
            .hint(format!("from {least} to {most}"))),
    }
}

/// One of `words`.
pub fn one_of<T: Copy, C: Kind>(value: &DeValue<'_>, words: &[(&str, T)]) -> Read<T, C> {
    let text = text(value)?;
    word::meaning(words, text).ok_or_else(|| {
        let known = words.iter().map(|(word, _)| *word);
        let listed = || format!("one of: {}", known.clone().collect::<Vec<_>>().join(", "));
        let hint = word::did_you_mean(text, known.clone(), listed);
        Complaint::new(Code::UnknownWord, format!("unknown word \"{text}\"")).hint(hint)
    })
}
