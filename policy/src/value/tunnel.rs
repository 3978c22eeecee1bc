//! Algorithms and keys of tunnels.

use toml::de::DeValue;
use wire::esp::{BadHex, SUITES, Secret, Suite};

use super::{Complaint, Form, Read, Text, quoted};
use crate::diagnostic::Code;
use config::value::text;

/// Cipher of a security association: its word.
pub(crate) const ALGORITHM: Text<&'static str> =
    Text { read: |text| known(text, &algorithms()), print: |word| (*word).to_owned() };

/// Key in hexadecimal digits. Its digits are in no message.
pub(crate) const KEY: Text<Secret> = Text { read: secret, print: hex };

/// Integrity algorithm beside the cipher of this word, which does not authenticate by itself.
pub(crate) struct Auth(pub(crate) &'static str);

impl Form<Suite> for Auth {
    fn read(&self, value: &DeValue<'_>) -> Read<Suite> {
        let Auth(algorithm) = *self;
        let auth = known(text(value)?, &auths())?;
        Suite::named(algorithm, Some(auth)).copied().ok_or_else(|| {
            let what = format!("{algorithm} with auth = \"{auth}\" protects nothing");
            Complaint::new(Code::NoIntegrity, what)
                .hint("name an integrity algorithm, such as \"hmac-sha256-128\"")
        })
    }

    fn print(&self, suite: &Suite) -> String {
        quoted(suite.name().auth().unwrap_or_default())
    }
}

/// Words of all ciphers.
pub(crate) fn algorithms() -> Vec<&'static str> {
    words(|suite| Some(suite.name().algorithm()))
}

/// Words of all integrity algorithms.
pub(crate) fn auths() -> Vec<&'static str> {
    words(|suite| suite.name().auth())
}

/// Words of all suites, each once, in their order.
fn words(of: impl Fn(&Suite) -> Option<&'static str>) -> Vec<&'static str> {
    let mut words: Vec<&str> = Vec::new();
    for word in SUITES.iter().filter_map(of) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

fn known(text: &str, words: &[&'static str]) -> Read<&'static str> {
    words.iter().copied().find(|word| *word == text).ok_or_else(|| {
        let listed = || format!("one of: {}", words.join(", "));
        Complaint::new(config::Code::UnknownWord, format!("unknown word \"{text}\""))
            .hint(config::word::did_you_mean(text, words.iter().copied(), listed))
    })
}

fn secret(text: &str) -> Read<Secret> {
    Secret::of_hex(text).map_err(|bad| {
        let what = match bad {
            BadHex::Odd => "the key has an odd number of hexadecimal digits".to_owned(),
            BadHex::Digit { at } => format!("character {at} of the key is no hexadecimal digit"),
        };
        Complaint::new(Code::BadKey, what).hint("two digits for each byte, without spaces or colons")
    })
}

fn hex(secret: &Secret) -> String {
    secret.expose().iter().map(|byte| format!("{byte:02x}")).collect()
}
