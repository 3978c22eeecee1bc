//! Diagnostic codes common to all TOML files: syntax, keys, types, names and numbers.

use std::fmt;

use super::Severity;

/// Codes of the diagnostics of one sort of file: the common [`Code`]s and its own.
pub trait Kind: Copy + Eq + Ord + fmt::Debug + fmt::Display + From<Code> + 'static {
    /// Own codes, with their names in kebab case and their severities.
    const OWN: &'static [(Self, &'static str, Severity)];

    /// The common code; `None` for an own one.
    fn common(self) -> Option<Code>;

    /// Name of the code, in kebab case.
    fn name(self) -> &'static str {
        match self.common() {
            Some(code) => code.name(),
            None => row(self).map_or("", |row| row.1),
        }
    }

    /// Severity of diagnostics with this code: an error makes the file wrong. Common codes are errors.
    fn severity(self) -> Severity {
        match self.common() {
            Some(_) => Severity::Error,
            None => row(self).map_or(Severity::Error, |row| row.2),
        }
    }
}

/// Row of an own code in its table.
fn row<K: Kind>(code: K) -> Option<&'static (K, &'static str, Severity)> {
    K::OWN.iter().find(|row| row.0 == code)
}

/// Code of a diagnostic that any file may have; always an error. Names are stable: scripts may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The text is not TOML.
    Syntax,
    /// The text is longer than the limit.
    TooLarge,
    /// The text is not UTF-8.
    NotUtf8,
    /// More errors than are listed; the rest is left out.
    TooManyDiagnostics,
    /// A key that the table does not have.
    UnknownKey,
    /// A key that has no meaning together with the value of another key.
    MisplacedKey,
    /// A required key is absent.
    MissingKey,
    /// A value of another type than the key wants.
    WrongType,
    /// A list without items where it would mean "all".
    EmptyList,
    /// A word that the key does not take.
    UnknownWord,
    /// A number out of its range.
    BadNumber,
    /// Not a number with a unit.
    BadQuantity,
    /// A name that is empty, too long, or has characters that names may not have.
    BadName,
    /// A name that is reserved for another meaning.
    ReservedName,
    /// Two items of one kind by the same name.
    DuplicateName,
}

impl Code {
    /// All codes, with their names.
    pub const ALL: &'static [(Code, &'static str)] = &[
        (Code::Syntax, "syntax"),
        (Code::TooLarge, "too-large"),
        (Code::NotUtf8, "not-utf8"),
        (Code::TooManyDiagnostics, "too-many-diagnostics"),
        (Code::UnknownKey, "unknown-key"),
        (Code::MisplacedKey, "misplaced-key"),
        (Code::MissingKey, "missing-key"),
        (Code::WrongType, "wrong-type"),
        (Code::EmptyList, "empty-list"),
        (Code::UnknownWord, "unknown-word"),
        (Code::BadNumber, "bad-number"),
        (Code::BadQuantity, "bad-quantity"),
        (Code::BadName, "bad-name"),
        (Code::ReservedName, "reserved-name"),
        (Code::DuplicateName, "duplicate-name"),
    ];

    /// Name of the code, in kebab case.
    pub fn name(self) -> &'static str {
        // In the order of the variants, which a test holds.
        Code::ALL[self as usize].1
    }
}

impl Kind for Code {
    const OWN: &'static [(Code, &'static str, Severity)] = &[];

    fn common(self) -> Option<Code> {
        Some(self)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn the_table_is_in_the_order_of_codes_and_names_are_kebab_case() {
        for (index, (code, name)) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as usize, index, "{name}");
            let debug: String = format!("{code:?}").to_lowercase();
            assert_eq!(debug, name.replace('-', ""), "the name is the variant's");
        }
        assert_eq!(Code::ALL.last(), Some(&(Code::DuplicateName, "duplicate-name")));
    }
}
