//! Check of one WAN by echo requests, by the WAN's interface alone: one host that answers is enough.

use std::net::IpAddr;

use policy::model::{Pace, Wan};

use crate::health::echo::Ping;
use crate::health::{Ask, Trouble, first_passed};

/// Check of a WAN by echo requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Interface that the requests leave by.
    interface: String,
    /// Hosts asked.
    hosts: Vec<IpAddr>,
    /// Interval and hysteresis.
    pub(super) pace: Pace,
}

/// Requests of a check.
pub(super) struct Requests(Vec<Ping>);

impl Plan {
    /// The check of a WAN, if it is by echo requests and there is somebody to ask.
    pub(super) fn of(wan: &Wan) -> Option<Plan> {
        let check = wan.check.as_ref().filter(|check| check.urls.is_empty())?;
        let hosts = if check.ping.is_empty() { &wan.gateways } else { &check.ping };
        (!hosts.is_empty()).then(|| Plan {
            interface: wan.interface.clone(),
            hosts: hosts.clone(),
            pace: check.pace,
        })
    }

    /// The requests.
    pub(super) fn requests(&self) -> Requests {
        Requests(self.hosts.iter().map(|host| Ping::new(*host, Some(&self.interface))).collect())
    }
}

impl Ask for Requests {
    async fn ask(&mut self) -> Result<(), Trouble> {
        first_passed(self.0.iter_mut().map(Ping::ask)).await
    }
}

#[cfg(test)]
mod tests {
    use policy::model::{CheckUrl, WanCheck};

    use super::*;

    #[test]
    fn a_check_without_hosts_is_none() {
        let mut wan = Wan::new("fibre", "fib0");
        assert_eq!(Plan::of(&wan), None);
        wan.check = Some(WanCheck::default());
        assert_eq!(Plan::of(&wan), None, "no router is known yet");
        wan.gateways = vec!["192.0.2.1".parse().unwrap()];
        assert_eq!(Plan::of(&wan).map(|plan| plan.hosts), Some(wan.gateways.clone()));
        let urls = CheckUrl::of("http://192.0.2.7/").into_iter().collect();
        wan.check = Some(WanCheck { urls, ..WanCheck::default() });
        assert_eq!(Plan::of(&wan), None, "it is by a URL");
    }
}
