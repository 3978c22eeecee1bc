//! Health checks of servers and WANs.

use super::{In, Validator};
use crate::diagnostic::Code;
use crate::lines::Item;
use crate::model::{
    Balance, CheckUrl, Nat, NatAction, Pace, Probe, Protocol, Scheme, ServerCheck, StatusRange,
};

impl Validator<'_> {
    /// Checks the health check of a balance.
    pub(super) fn server_check(&mut self, item: Item, nat: &Nat, balance: &Balance) {
        let Some(check) = &balance.check else { return };
        self.pace(item, &check.pace);
        let is_by_url = matches!(check.probe, Probe::Url(_));
        self.status_of_url(item, &check.status, is_by_url);
        if self.lines.is_broken(item) {
            return;
        }
        let has_port =
            balance.servers.iter().all(|server| server.port.is_some()) || !balance.ports.is_empty();
        let is_of_tcp = nat.protocols.contains(&Protocol::TCP);
        // Where the port of the servers is needed, how to give another.
        let example = match &check.probe {
            Probe::Tcp => Some("tcp:8080".to_owned()),
            Probe::Url(url) if url.port.is_none() => {
                Some(CheckUrl { port: Some(8080), ..url.clone() }.to_string())
            }
            _ => None,
        };
        let without = match (has_port, is_of_tcp) {
            (false, _) => Some("no port is known to check the servers by"),
            (true, false) => Some("the servers' ports are none of TCP: the check needs a port of its own"),
            (true, true) => None,
        };
        if let (Some(example), Some(without)) = (example, without) {
            let hint = format!("write probe = \"{example}\" with the port, or probe = \"ping\"");
            self.wrong(Code::BadCheck, item, "probe", without.to_owned(), hint);
        }
        if let Probe::Url(url) = &check.probe {
            if url.scheme == Scheme::Https && url.host.is_empty() {
                let message = format!("the certificate of \"{url}\" has no name to be checked by");
                let hint = "write the name that clients use: probe = \"https://shop.example/health\"; the server's address is asked all the same";
                self.wrong(Code::BadCheck, item, "probe", message, hint);
            }
        }
    }

    /// Checks the number of servers that a policy has checked.
    pub(super) fn servers_checked(&mut self) {
        let checked = |nat: &Nat| match &nat.action {
            NatAction::Balance(balance) if balance.check.is_some() => balance.servers.len(),
            _ => 0,
        };
        let mut all = 0;
        for (index, nat) in self.policy.nats.iter().enumerate() {
            let before = all;
            all += checked(nat);
            if before <= ServerCheck::MOST_SERVERS && all > ServerCheck::MOST_SERVERS {
                let message = format!("more than {} servers are checked", ServerCheck::MOST_SERVERS);
                let hint = "leave some unchecked: a load balancer is made for as many";
                self.wrong(Code::TooMany, Item::Nat(index), "check", message, hint);
            }
        }
    }

    /// Checks the URLs that a WAN is checked by.
    pub(super) fn check_urls(&mut self, item: Item, urls: &[CheckUrl]) {
        for (index, url) in urls.iter().enumerate() {
            if url.host.is_empty() {
                let message = format!("\"{url}\" has no host");
                let hint = "write url = \"http://HOST/PATH\", of a host behind the WAN";
                self.wrong_in(Code::BadCheck, In { item, key: "url", index }, message, hint);
            }
        }
    }

    /// Checks that only a check by URL has statuses.
    pub(super) fn status_of_url(&mut self, item: Item, status: &[StatusRange], is_by_url: bool) {
        if !is_by_url && status != [StatusRange::SUCCESSFUL] {
            let message = "only an answer by HTTP has a status".to_owned();
            self.wrong(Code::BadCheck, item, "status", message, "give a URL, or leave `status` out");
        }
    }

    /// Checks the bounds of an interval and of the time for an answer.
    pub(super) fn pace(&mut self, item: Item, pace: &Pace) {
        if !(Pace::LEAST_EVERY..=Pace::MOST_EVERY).contains(&pace.every) {
            let message = "checks are 100 ms apart at least, and an hour at most".to_owned();
            self.wrong(Code::BadCheck, item, "every", message, "write every = \"1s\"");
        } else if pace.timeout.is_some_and(|timeout| !(Pace::LEAST_TIMEOUT..=pace.every).contains(&timeout)) {
            let message = "an answer has 10 ms at least, and no longer than until the next check".to_owned();
            let hint = "write timeout = \"1s\", or leave it out: `every`, and two seconds at most";
            self.wrong(Code::BadCheck, item, "timeout", message, hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use crate::model::{Balance, ServerCheck};

    #[test]
    fn more_checked_servers_than_there_can_be_are_refused() {
        let with = |count: usize| {
            let mut text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/16\"]\n".to_owned();
            let servers: Vec<String> =
                (0..count).map(|server| format!("\"10.0.{}.{}\"", server / 200 + 1, server % 200)).collect();
            for (number, servers) in servers.chunks(Balance::MOST_SERVERS).enumerate() {
                let targets = servers.join(", ");
                let _ = writeln!(
                    text,
                    "[[nat]]\nname = \"farm-{number}\"\nkind = \"balance\"\noutside = \"10.0.0.1\"\n\
                     protocol = \"tcp\"\nport = {}\ntargets = [{targets}]\ncheck = {{}}",
                    1000 + number
                );
            }
            crate::check(&text, "many.toml")
        };
        let checked = with(ServerCheck::MOST_SERVERS);
        assert!(checked.policy.is_some(), "{:?}", checked.diagnostics);
        let checked = with(ServerCheck::MOST_SERVERS + 1);
        let messages: Vec<&str> = checked.errors().map(|error| error.message.as_str()).collect();
        assert_eq!(messages, ["more than 512 servers are checked"]);
    }
}
