//! Check of one WAN by URLs, by the WAN's interface alone: one answer whose status passes is enough.

use std::net::SocketAddr;
use std::sync::Arc;

use policy::model::{CheckUrl, Pace, Scheme, StatusRange, Wan};
use rustls::ClientConfig;

use crate::health::http::{Question, Tls, ask};
use crate::health::{Ask, Named, Trouble, first_passed};

/// Check of a WAN by URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Interface that the requests leave by.
    interface: String,
    urls: Vec<CheckUrl>,
    status: Vec<StatusRange>,
    /// Interval and hysteresis.
    pub(super) pace: Pace,
}

/// Requests of a check.
pub(super) struct Requests {
    interface: String,
    requests: Vec<Request>,
}

struct Request {
    host: Named,
    question: Question,
}

impl Plan {
    /// The check of a WAN, if it is by URLs.
    pub(super) fn of(wan: &Wan) -> Option<Plan> {
        let check = wan.check.as_ref().filter(|check| !check.urls.is_empty())?;
        Some(Plan {
            interface: wan.interface.clone(),
            urls: check.urls.clone(),
            status: check.status.clone(),
            pace: check.pace,
        })
    }

    /// True if a request needs TLS.
    pub(super) fn needs_tls(&self) -> bool {
        self.urls.iter().any(|url| url.scheme == Scheme::Https)
    }

    /// The requests; those by TLS need `tls`, and are left out without it.
    pub(super) fn requests(&self, tls: Option<&Arc<ClientConfig>>) -> Requests {
        let request = |url: &CheckUrl| {
            let (port, tls) = match url.scheme {
                Scheme::Http => (80, None),
                Scheme::Https => (443, Some(Tls { name: url.host.clone(), config: Arc::clone(tls?) })),
            };
            let host = Named::new(&url.host, url.port.unwrap_or(port));
            let (path, authority) = (url.path.clone(), url.authority(""));
            Some(Request { host, question: Question { path, authority, status: self.status.clone(), tls } })
        };
        Requests {
            interface: self.interface.clone(),
            requests: self.urls.iter().filter_map(request).collect(),
        }
    }
}

impl Ask for Requests {
    async fn ask(&mut self) -> Result<(), Trouble> {
        let Requests { interface, requests } = self;
        let interface = interface.as_str();
        first_passed(requests.iter_mut().map(|Request { host, question }| {
            let question = &*question;
            async move {
                let addresses = host.addresses().await?;
                let by_each = addresses.iter().map(|to: &SocketAddr| ask(*to, Some(interface), question));
                first_passed(by_each).await?;
                host.answered();
                Ok(())
            }
        }))
        .await
    }
}
