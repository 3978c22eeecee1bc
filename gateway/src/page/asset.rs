//! Files of the page, in the program itself.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asset {
    /// Path that it is asked for by.
    pub(super) path: &'static str,
    kind: &'static str,
    pub(super) text: &'static str,
}

/// A module of the page's script.
const fn script(path: &'static str, text: &'static str) -> Asset {
    Asset { path, kind: "text/javascript; charset=utf-8", text }
}

/// All files.
pub(super) const ASSETS: &[Asset] = &[
    Asset { path: "/", kind: "text/html; charset=utf-8", text: include_str!("../../page/index.html") },
    Asset { path: "/style.css", kind: "text/css; charset=utf-8", text: include_str!("../../page/style.css") },
    Asset { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("../../page/icon.svg") },
    script("/app.js", include_str!("../../page/app.js")),
    script("/api.js", include_str!("../../page/api.js")),
    script("/dom.js", include_str!("../../page/dom.js")),
    script("/status.js", include_str!("../../page/status.js")),
    script("/flows.js", include_str!("../../page/flows.js")),
    script("/drops.js", include_str!("../../page/drops.js")),
    script("/rules.js", include_str!("../../page/rules.js")),
    script("/mappings.js", include_str!("../../page/mappings.js")),
    script("/sets.js", include_str!("../../page/sets.js")),
    script("/queues.js", include_str!("../../page/queues.js")),
    script("/zones.js", include_str!("../../page/zones.js")),
    script("/explain.js", include_str!("../../page/explain.js")),
    script("/policy.js", include_str!("../../page/policy.js")),
    script("/audit.js", include_str!("../../page/audit.js")),
];

/// The file at a path.
pub(super) fn at(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

impl IntoResponse for &'static Asset {
    fn into_response(self) -> Response {
        // Another version of the gateway has other files.
        ([(CONTENT_TYPE, self.kind), (CACHE_CONTROL, "no-cache")], self.text).into_response()
    }
}
