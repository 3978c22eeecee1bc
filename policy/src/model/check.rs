//! Health checks by a live gateway: what is asked, how often, and how many outcomes in a row count.

use std::fmt;

use wire::Nanos;

/// Health check of the servers of a balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCheck {
    /// Question to each server.
    pub probe: Probe,
    /// Statuses of HTTP that pass.
    pub status: Vec<StatusRange>,
    /// Interval and hysteresis.
    pub pace: Pace,
}

/// Question of a health check to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Probe {
    /// A TCP connection, to the server's port where no other is given.
    #[default]
    Tcp,
    /// A TCP connection to this port.
    TcpPort(u16),
    /// An echo request.
    Ping,
    /// A request by HTTP, or by HTTP over TLS. The server's address is asked, whatever host the URL has.
    Url(CheckUrl),
}

/// URL of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckUrl {
    /// Scheme.
    pub scheme: Scheme,
    /// Host: a name or an address, of IPv6 without brackets. Empty for that of the server.
    pub host: String,
    /// Port; that of the server or of the scheme where absent.
    pub port: Option<u16>,
    /// Path and query, from the first slash on.
    pub path: String,
}

/// Scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

/// Statuses of HTTP, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    /// First status.
    pub first: u16,
    /// Last status.
    pub last: u16,
}

/// Interval between checks, and the hysteresis of their outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Interval between two checks.
    pub every: Nanos,
    /// Longest time for an answer; as long as the interval where absent, and two seconds at most.
    pub timeout: Option<Nanos>,
    /// Failures in a row that take what is checked down, 1 to 255.
    pub fall: u8,
    /// Passes in a row that bring it up again, 1 to 255.
    pub rise: u8,
}

impl ServerCheck {
    /// Interval and hysteresis where the policy says nothing, as HAProxy's.
    pub const PACE: Pace = Pace { every: Nanos::from_secs(2), timeout: None, fall: 3, rise: 2 };
    /// Most servers of a policy that are checked.
    pub const MOST_SERVERS: usize = 512;
}

impl Default for ServerCheck {
    fn default() -> ServerCheck {
        ServerCheck {
            probe: Probe::default(),
            status: vec![StatusRange::SUCCESSFUL],
            pace: ServerCheck::PACE,
        }
    }
}

impl Pace {
    /// Shortest interval.
    pub const LEAST_EVERY: Nanos = Nanos::from_millis(100);
    /// Longest interval.
    pub const MOST_EVERY: Nanos = Nanos::from_secs(3_600);
    /// Shortest time for an answer.
    pub const LEAST_TIMEOUT: Nanos = Nanos::from_millis(10);
    /// Longest time for an answer where the policy gives none.
    pub const PATIENCE: Nanos = Nanos::from_secs(2);

    /// Longest time for an answer.
    pub fn patience(&self) -> Nanos {
        self.timeout.unwrap_or(Pace::PATIENCE).min(self.every)
    }
}

impl StatusRange {
    /// 200 to 299: the request was successful (RFC 9110, section 15.3).
    pub const SUCCESSFUL: StatusRange = StatusRange { first: 200, last: 299 };

    /// True of a status in the range.
    pub fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

impl CheckUrl {
    /// Longest URL, in bytes.
    pub const LONGEST: usize = 1_024;

    /// Reads a URL; `None` of a text that is none, or that has a user or a fragment.
    pub fn of(text: &str) -> Option<CheckUrl> {
        let (scheme, rest) = match text.split_once("://")? {
            ("http", rest) => (Scheme::Http, rest),
            ("https", rest) => (Scheme::Https, rest),
            _ => return None,
        };
        let slash = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(slash);
        let path = if path.is_empty() { "/" } else { path };
        // RFC 3986, section 3.3 and 3.4.
        let is_plain = |char: char| char.is_ascii_graphic() && !"#<>\"\\^`{|}".contains(char);
        if text.len() > CheckUrl::LONGEST || !path.chars().all(is_plain) {
            return None;
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                host.parse::<std::net::Ipv6Addr>().ok()?;
                (host, port)
            }
            None => {
                let colon = authority.find(':').unwrap_or(authority.len());
                let (host, port) = authority.split_at(colon);
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                if host.len() > 253 || !host.bytes().all(is_name) {
                    return None;
                }
                (host, port)
            }
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => None,
            None => return None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().ok().filter(|port| *port > 0)?)
            }
            Some(_) => return None,
        };
        Some(CheckUrl { scheme, host: host.to_owned(), port, path: path.to_owned() })
    }

    /// Host and port as in a URL and in the field `Host`, with `host` where the URL has none.
    pub fn authority(&self, host: &str) -> String {
        let host = if self.host.is_empty() { host } else { &self.host };
        let mut text = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        if let Some(port) = self.port {
            text.push_str(&format!(":{port}"));
        }
        text
    }
}

impl fmt::Display for CheckUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}{}", self.authority(""), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_print_as_they_are_written() {
        for text in [
            "http:///",
            "http://:8080/health",
            "https://shop.example/a/b?c=d&e=%20",
            "https://192.0.2.1:8443/",
            "http://[2001:db8::1]:80/x",
        ] {
            assert_eq!(CheckUrl::of(text).map(|url| url.to_string()).as_deref(), Some(text));
        }
        assert_eq!(CheckUrl::of("http://a").map(|url| url.path).as_deref(), Some("/"));
    }

    #[test]
    fn other_texts_are_no_urls() {
        let long = format!("http://a/{}", "a".repeat(1_024));
        for text in [
            "",
            "http",
            "ftp://a/",
            "http:/a",
            "http://user@a/",
            "http://a:0/",
            "http://a:70000/",
            "http://a:+80/",
            "http://a:/x:",
            "http://[::1/",
            "http://[::1]80/",
            "http://[1.2.3.4]/",
            "http://a/#there",
            "http://a/ b",
            "http://a/\r\nHost: b",
            "http://ä/",
            "http://a b/",
            &long,
        ] {
            assert_eq!(CheckUrl::of(text), None, "{text}");
        }
    }
}
