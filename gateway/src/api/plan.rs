//! `POST /plan`: faults of a policy, and the changes that it would make to the policy in force, by name.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use policy::Diagnostic;
use policy::plan::Change;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, Desk, failed, text_of};
use crate::request::Request;

/// Response: what a policy would change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanView {
    /// True if the policy has no errors.
    pub sound: bool,
    /// Errors and warnings, in the order of the text; the first 100.
    pub diagnostics: Vec<Value>,
    /// Number of all errors and warnings.
    pub diagnostics_total: usize,
    /// Changes to the policy in force; none where the policy has errors.
    pub changes: Vec<ChangeView>,
    /// Interfaces that would be closed, as the policy does not name them.
    pub closed: Vec<String>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeView {
    /// `add`, `remove`, `change` or `move`.
    pub kind: String,
    /// Kind and name of the item.
    pub thing: String,
    /// Lines removed from the item's text.
    pub old: Vec<String>,
    /// Lines added to the item's text.
    pub new: Vec<String>,
}

/// Diagnostics listed, at most.
const MOST: usize = 100;

impl From<Change> for ChangeView {
    fn from(change: Change) -> ChangeView {
        let Change { kind, thing, old, new } = change;
        ChangeView { kind: kind.name().to_owned(), thing, old, new }
    }
}

pub(super) async fn plan(State(desk): State<Desk>, body: Body) -> Answer<Json<PlanView>> {
    let text = text_of(body).await?;
    let now = desk.ask(Request::Policy).await?;
    let plan = tokio::task::spawn_blocking(move || {
        let checked = policy::check(&text, "policy");
        let value = |diagnostic: &Diagnostic| serde_json::to_value(diagnostic).unwrap_or_default();
        let (changes, closed) = checked.policy.as_ref().map_or_else(Default::default, |new| {
            let closed = now.interfaces.iter().filter(|old| new.interface(&old.name).is_none());
            let closed = closed.map(|interface| interface.name.clone()).collect();
            (policy::plan(&now, new).into_iter().map(ChangeView::from).collect(), closed)
        });
        PlanView {
            sound: checked.policy.is_some(),
            diagnostics: checked.diagnostics.iter().take(MOST).map(value).collect(),
            diagnostics_total: checked.diagnostics.len(),
            changes,
            closed,
        }
    });
    Ok(Json(plan.await.map_err(|_| failed("the policy could not be compared"))?))
}
