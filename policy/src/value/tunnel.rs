//! Algorithms and keys of tunnels.

use wire::esp::{BadHex, Secret, Suite};

use super::{Complaint, Read, Text};
use crate::diagnostic::Code;

/// Algorithm of a security association.
pub(crate) const ALGORITHM: Text<Suite> =
    Text { read: algorithm, print: |suite| suite.name().algorithm().to_owned() };

/// Key in hexadecimal digits. Its digits are in no message.
pub(crate) const KEY: Text<Secret> = Text { read: secret, print: hex };

/// Algorithms that a policy may name.
pub(crate) const ALGORITHMS: [&str; 2] = ["aes128-gcm", "aes256-gcm"];

fn algorithm(text: &str) -> Read<Suite> {
    let named = ALGORITHMS.into_iter().find(|name| *name == text);
    named.and_then(|name| Suite::named(name, None)).copied().ok_or_else(|| {
        let listed = || format!("one of: {}", ALGORITHMS.join(", "));
        Complaint::new(config::Code::UnknownWord, format!("unknown word \"{text}\""))
            .hint(config::word::did_you_mean(text, ALGORITHMS, listed))
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
