//! Audit log: logins, refusals and changes, with user, address and result. In memory the latest, in the gateway's log all.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use axum::http::{Method, StatusCode};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::{Page, User};
use crate::log::line::time_text;

/// Entries in memory, at most.
const MOST: usize = 1_000;

/// Characters of a request that an entry has, at most.
const MOST_OF_REQUEST: usize = 512;

/// Entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Time in UTC, as in RFC 3339.
    pub time: String,
    /// Name of the user; none where nobody was recognised.
    pub user: Option<String>,
    /// Address that the request came from.
    pub address: IpAddr,
    /// Method, path and query.
    pub request: String,
    /// Status code of the response.
    pub status: u16,
}

/// Latest entries, the earliest first.
#[derive(Default)]
pub(super) struct Audit {
    entries: Mutex<VecDeque<AuditEntry>>,
}

/// A request, for its entry.
pub(super) struct Asked<'a> {
    pub(super) user: Option<&'a User>,
    pub(super) address: IpAddr,
    pub(super) method: &'a Method,
    pub(super) target: &'a str,
}

impl Audit {
    pub(super) fn record(&self, asked: &Asked<'_>, status: StatusCode) {
        let target: String = asked.target.chars().take(MOST_OF_REQUEST).collect();
        let entry = AuditEntry {
            time: time_text(SystemTime::now()),
            user: asked.user.map(|user| user.name.clone()),
            address: asked.address.to_canonical(),
            request: format!("{} {target}", asked.method),
            status: status.as_u16(),
        };
        let user = entry.user.as_deref().unwrap_or("-");
        let (address, request) = (entry.address, &entry.request);
        let status = entry.status;
        if status < 400 {
            info!(user, %address, request, status, "page: change requested");
        } else {
            warn!(user, %address, request, status, "page: request refused");
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == MOST {
            entries.pop_front();
        }
        entries.push_back(entry);
    }
}

/// `GET /audit`: the entries, the latest first.
pub(crate) async fn audit(Extension(page): Extension<Arc<Page>>) -> Json<Vec<AuditEntry>> {
    let entries = page.audit.entries.lock().unwrap_or_else(PoisonError::into_inner);
    Json(entries.iter().rev().cloned().collect())
}
