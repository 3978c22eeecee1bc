//! Health checks: questions, URLs and statuses.

use config::wrong_type;
use toml::de::DeValue;

use super::{Complaint, Read, Text, Value, number, quoted};
use crate::diagnostic::Code;
use crate::model::{CheckUrl, Probe, StatusRange};

/// A question to a server: `tcp`, `tcp:PORT`, `ping` or a URL.
pub(crate) const PROBE: Text<Probe> = Text { read: probe, print: probe_text };

/// A URL of HTTP, or of HTTP over TLS.
pub(crate) const CHECK_URL: Text<CheckUrl> = Text {
    read: |text| {
        CheckUrl::of(text).ok_or_else(|| {
            Complaint::new(Code::BadCheck, format!("\"{text}\" is no URL of a check")).hint(
                "write \"http://HOST/PATH\" or \"https://HOST/PATH\", with \":PORT\" behind the host where it is another",
            )
        })
    },
    print: CheckUrl::to_string,
};

/// A status of HTTP, or statuses from one to another.
pub(crate) const STATUS: Value<StatusRange> = Value { read: status, print: status_text };

fn probe(text: &str) -> Read<Probe> {
    let wrong = || {
        Complaint::new(Code::BadCheck, format!("\"{text}\" is no probe"))
            .hint("write \"tcp\", \"tcp:8080\", \"ping\", \"http:///health\", \"http://:8080/health\" or \"https://shop.example/health\"")
    };
    match text {
        "tcp" => Ok(Probe::Tcp),
        "ping" => Ok(Probe::Ping),
        _ => match text.strip_prefix("tcp:") {
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => Ok(Probe::TcpPort(port)),
                _ => Err(wrong()),
            },
            None => CheckUrl::of(text).map(Probe::Url).ok_or_else(wrong),
        },
    }
}

fn probe_text(probe: &Probe) -> String {
    match probe {
        Probe::Tcp => "tcp".to_owned(),
        Probe::TcpPort(port) => format!("tcp:{port}"),
        Probe::Ping => "ping".to_owned(),
        Probe::Url(url) => url.to_string(),
    }
}

fn status(value: &DeValue<'_>) -> Read<StatusRange> {
    let wrong = |text: &str| {
        Complaint::new(Code::BadCheck, format!("\"{text}\" is no status of HTTP"))
            .hint("write a number from 100 to 599, or a range such as \"200-399\"")
    };
    let (first, last, text) = match value {
        DeValue::Integer(integer) => {
            let text = integer.to_string();
            let status = number(value, 100, 599).map_err(|_| wrong(&text))? as u16;
            (status, status, text)
        }
        DeValue::String(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let part = |part: &str| part.trim().parse::<u16>().map_err(|_| wrong(text));
            (part(first)?, part(last)?, text.to_string())
        }
        other => return Err(wrong_type("a status or a range of statuses", other)),
    };
    if first < 100 || last > 599 || first > last {
        return Err(wrong(&text));
    }
    Ok(StatusRange { first, last })
}

fn status_text(range: &StatusRange) -> String {
    match range.first == range.last {
        true => range.first.to_string(),
        false => quoted(&format!("{}-{}", range.first, range.last)),
    }
}
