//! Dynamic sets, over the control API.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use ipnet::IpNet;

use super::trouble::{Answer, Trouble, trouble};
use super::{Desk, basis};
use crate::request::{Request, SetTrouble};
use crate::set::{
    AT_ONCE, ElementView, Elements, SetChanged, SetFaults, SetQuery, SetRequest, SetView, prefix,
};
use crate::supervisor::{SetAddition, SetAsked};
use crate::worker::Command;

/// Most bytes of a request: some 40,000 addresses.
pub(super) const MOST: usize = 1 << 20;

/// Elements listed in a response, at most.
const LISTED: usize = 10_000;

/// Places of the table of elements that a worker visits between two turns.
const PLACES: u32 = 8192;

/// Longest time after which an element expires: ten years.
const LONGEST: Duration = Duration::from_secs(315_360_000);

pub(super) async fn sets(State(desk): State<Desk>) -> Answer<Json<Vec<SetView>>> {
    Ok(Json(desk.overview().await?.sets.clone()))
}

pub(super) async fn elements(
    State(desk): State<Desk>,
    Query(query): Query<SetQuery>,
) -> Answer<Json<Elements>> {
    let near = query.near.as_deref().map(basis::near).transpose()?;
    let is_listed = |view: &ElementView| {
        near.as_ref().is_none_or(|near| view.prefix().is_some_and(|prefix| near.meets(&prefix)))
    };
    let workers = desk.ask(Request::Workers).await?;
    let Some(worker) = workers.first() else { return Err(unknown(&query.set)) };
    let mut listed = Elements { elements: Vec::new(), next: query.after.or(Some(0)) };
    while let Some(first) = listed.next.filter(|_| listed.elements.len() < LISTED) {
        let set = query.set.clone();
        let found =
            desk.ask_worker(worker, |reply| Command::SetElements { set, first, most: PLACES, reply }).await?;
        let Elements { elements, next } = found.ok_or_else(|| unknown(&query.set))?;
        listed.elements.extend(elements.into_iter().filter(is_listed));
        listed.next = next;
    }
    Ok(Json(listed))
}

pub(super) async fn faults(
    State(desk): State<Desk>,
    Query(query): Query<SetQuery>,
) -> Answer<Json<SetFaults>> {
    let set = query.set.clone();
    let faults = desk.ask(|reply| Request::SetFaults { set, reply }).await?;
    faults.map(Json).ok_or_else(|| {
        let error = format!("no file and no URL fills a set \"{}\"", query.set);
        trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "`wirerate set` lists all sets with their sources")
    })
}

pub(super) async fn add(State(desk): State<Desk>, body: Bytes) -> Answer<Json<SetChanged>> {
    let request = request(&body)?;
    let usual = request.timeout.as_deref().map(timeout).transpose()?;
    let additions = request.elements.iter().map(|text| {
        let (word, own) = match text.split_once(" timeout ") {
            Some((word, own)) => (word, Some(timeout(own.trim())?)),
            None => (text.as_str(), None),
        };
        Ok(SetAddition { prefix: element(word)?, timeout: own.or(usual) })
    });
    let additions: Vec<SetAddition> = additions.collect::<Answer<_>>()?;
    change(&desk, &request.set, &additions, |additions| SetAsked::Add(additions.to_vec())).await
}

pub(super) async fn remove(State(desk): State<Desk>, body: Bytes) -> Answer<Json<SetChanged>> {
    let request = request(&body)?;
    if request.timeout.is_some() {
        let error = "elements are removed at once, without a timeout";
        return Err(trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "leave the timeout out"));
    }
    let prefixes: Vec<IpNet> = request.elements.iter().map(|word| element(word)).collect::<Answer<_>>()?;
    change(&desk, &request.set, &prefixes, |prefixes| SetAsked::Remove(prefixes.to_vec())).await
}

pub(super) async fn flush(
    State(desk): State<Desk>,
    Query(query): Query<SetQuery>,
) -> Answer<Json<SetChanged>> {
    let mut changed = SetChanged::default();
    ask(&desk, &query.set, SetAsked::Flush, &mut changed).await?;
    Ok(Json(changed))
}

fn request(body: &[u8]) -> Answer<SetRequest> {
    serde_json::from_slice(body).map_err(|error| {
        let hint = r#"nothing has changed; send {"set": "NAME", "elements": ["192.0.2.1"], "timeout": "1h"}"#;
        trouble(StatusCode::UNPROCESSABLE_ENTITY, format!("the request cannot be read: {error}"), hint)
    })
}

fn element(word: &str) -> Answer<IpNet> {
    prefix(word.trim()).map_err(|fault| {
        let error = format!("\"{}\": {fault}", word.escape_debug());
        let hint = "nothing has changed; write addresses and networks, such as 192.0.2.7 or 2001:db8::/32";
        trouble(StatusCode::UNPROCESSABLE_ENTITY, error, hint)
    })
}

/// Changes a set by all elements, in groups between which packets have their turn.
async fn change<T>(
    desk: &Desk,
    set: &str,
    elements: &[T],
    asked: impl Fn(&[T]) -> SetAsked,
) -> Answer<Json<SetChanged>> {
    let mut changed = SetChanged::default();
    if elements.is_empty() {
        // An error all the same where there is no such set.
        ask(desk, set, asked(elements), &mut changed).await?;
    }
    for group in elements.chunks(AT_ONCE) {
        ask(desk, set, asked(group), &mut changed).await?;
    }
    Ok(Json(changed))
}

async fn ask(desk: &Desk, name: &str, asked: SetAsked, changed: &mut SetChanged) -> Answer<()> {
    let set = name.to_owned();
    let part = desk.ask(|reply| Request::ChangeSet { set, asked, reply }).await?;
    let part = part.map_err(|error| match error {
        SetTrouble::Unknown => unknown(name),
        SetTrouble::Listed => {
            let error = format!("a file or a URL fills the set \"{name}\"");
            let hint = "change the list; or name two sets in the rule, one of them without `file` and `url`";
            trouble(StatusCode::CONFLICT, error, hint)
        }
    })?;
    changed.add(&part);
    Ok(())
}

pub(super) fn timeout(text: &str) -> Answer<Duration> {
    let wrong = |error: String| {
        trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "write a time such as `1h`, `90s` or `7d`")
    };
    let timeout = humantime::parse_duration(text);
    let timeout =
        timeout.map_err(|error| wrong(format!("the timeout \"{}\": {error}", text.escape_debug())))?;
    if timeout.is_zero() || timeout > LONGEST {
        return Err(wrong("a timeout is from above zero to ten years".to_owned()));
    }
    Ok(timeout)
}

fn unknown(set: &str) -> (StatusCode, Json<Trouble>) {
    let error = format!("the policy has no dynamic set \"{set}\"");
    trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "`wirerate set` lists all")
}
