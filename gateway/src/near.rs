//! Filter of routes and elements of sets by the addresses that one packet may meet them with, for explaining what the pipeline would do with
//! that packet: a gateway may have a million of both.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Most addresses and networks of a filter.
const MOST: usize = 4096;

/// Addresses and networks; printed and read with commas between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Near(Vec<IpNet>);

/// Reason why a text is no such filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNear {
    /// Neither an address nor a network.
    #[error("\"{}\" is neither an address nor a network", .0.escape_debug())]
    Word(String),
    /// Too many.
    #[error("more than {MOST} addresses")]
    TooMany,
}

impl Near {
    /// True if `prefix` has an address in common with one of the filter.
    pub fn meets(&self, prefix: &IpNet) -> bool {
        self.0.iter().any(|own| own.contains(prefix) || prefix.contains(own))
    }

    /// Adds an address.
    pub fn add(&mut self, address: IpAddr) {
        self.add_net(address.into());
    }

    /// Adds a network.
    pub fn add_net(&mut self, net: IpNet) {
        if !self.0.contains(&net) && self.0.len() < MOST {
            self.0.push(net);
        }
    }
}

impl FromStr for Near {
    type Err = BadNear;

    fn from_str(text: &str) -> Result<Near, BadNear> {
        let mut near = Near::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if near.0.len() == MOST {
                return Err(BadNear::TooMany);
            }
            let address = word.parse::<IpAddr>().map(IpNet::from);
            let net = address.or_else(|_| word.parse::<IpNet>());
            near.add_net(net.map_err(|_| BadNear::Word(word.to_owned()))?);
        }
        Ok(near)
    }
}

impl std::fmt::Display for Near {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, net) in self.0.iter().enumerate() {
            write!(f, "{}{net}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{BadNear, Near};

    #[test]
    fn prefixes_around_and_inside_are_near() {
        let near: Near = "192.0.2.7, 10.0.0.0/8,2001:db8::1,192.0.2.7".parse().unwrap();
        assert_eq!(near.to_string(), "192.0.2.7/32,10.0.0.0/8,2001:db8::1/128");
        assert_eq!(near.to_string().parse(), Ok(near.clone()));
        let meets = |prefix: &str| near.meets(&prefix.parse().unwrap());
        for prefix in ["0.0.0.0/0", "192.0.2.0/24", "192.0.2.7/32", "10.1.0.0/16", "::/0", "2001:db8::/32"] {
            assert!(meets(prefix), "{prefix}");
        }
        for prefix in ["192.0.2.0/30", "11.0.0.0/8", "2001:db9::/32"] {
            assert!(!meets(prefix), "{prefix}");
        }
        assert!(!"".parse::<Near>().unwrap().meets(&"0.0.0.0/0".parse().unwrap()));
    }

    #[test]
    fn other_words_are_refused() {
        assert_eq!("192.0.2.7,x\n".parse::<Near>(), Err(BadNear::Word("x".to_owned())));
        let many: Vec<String> = (0..5000).map(|n: u32| format!("10.0.{}.{}", n / 256, n % 256)).collect();
        assert_eq!(many.join(",").parse::<Near>(), Err(BadNear::TooMany));
    }
}
