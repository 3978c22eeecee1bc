//! Access to the page's API: by each role, by nobody, by forgers, by other sites and under other names. Behind it is the stub of the
//! control socket's tests.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::to_bytes;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::{Extension, Router};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::Builder;

use super::asset::ASSETS;
use super::{Page, Peer, Role, Transport, UserFile, openapi, router};
use crate::api::Desk;
use crate::api::route::{self, BASE, ROUTES};
use crate::server::tests::desk;

/// Every route, with the least role that it takes; none: no login.
const ACCESS: [(&str, &str, Option<Role>); 36] = [
    ("POST", "/login", None),
    ("POST", "/logout", Some(Role::Read)),
    ("GET", "/me", Some(Role::Read)),
    ("GET", "/audit", Some(Role::Change)),
    ("GET", "/openapi.json", Some(Role::Read)),
    ("GET", "/status", Some(Role::Read)),
    ("GET", "/ports", Some(Role::Read)),
    ("GET", "/rules", Some(Role::Read)),
    ("GET", "/nat", Some(Role::Read)),
    ("GET", "/classes", Some(Role::Read)),
    ("GET", "/zones", Some(Role::Read)),
    ("GET", "/queues", Some(Role::Read)),
    ("GET", "/sas", Some(Role::Read)),
    ("GET", "/port-mappings", Some(Role::Read)),
    ("POST", "/port-mappings/add", Some(Role::Operate)),
    ("POST", "/port-mappings/remove", Some(Role::Operate)),
    ("GET", "/sets", Some(Role::Read)),
    ("GET", "/sets/elements", Some(Role::Read)),
    ("GET", "/sets/faults", Some(Role::Read)),
    ("POST", "/sets/add", Some(Role::Operate)),
    ("POST", "/sets/remove", Some(Role::Operate)),
    ("POST", "/sets/flush", Some(Role::Operate)),
    ("GET", "/drops", Some(Role::Read)),
    ("GET", "/drops/packets", Some(Role::Operate)),
    ("GET", "/drops/pcapng", Some(Role::Operate)),
    ("GET", "/flows", Some(Role::Read)),
    ("POST", "/flows/kill", Some(Role::Operate)),
    ("GET", "/explain", Some(Role::Read)),
    ("GET", "/policy", Some(Role::Read)),
    ("GET", "/policy/history", Some(Role::Read)),
    ("GET", "/policy/kept", Some(Role::Read)),
    ("GET", "/basis", Some(Role::Read)),
    ("POST", "/plan", Some(Role::Read)),
    ("POST", "/apply", Some(Role::Change)),
    ("POST", "/confirm", Some(Role::Change)),
    ("POST", "/rollback", Some(Role::Change)),
];

/// A page, with a user of each role, named by it.
struct Site {
    page: Arc<Page>,
    router: Router,
    path: std::path::PathBuf,
    file: UserFile,
    tokens: [String; 3],
}

struct Heard {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Site {
    fn new(name: &str, transport: Transport) -> Site {
        Site::behind(name, transport, &[])
    }

    /// Behind proxies that show the page under these origins.
    fn behind(name: &str, transport: Transport, origins: &[&str]) -> Site {
        let path = std::env::temp_dir().join(format!("wirerate-page-{}-{name}", std::process::id()));
        let mut file = UserFile::default();
        let tokens = Role::ALL.map(|role| file.add(role.name(), role).unwrap());
        fs::write(&path, file.to_string()).unwrap();
        let origins = origins.iter().map(ToString::to_string).collect();
        let names = vec!["gateway.example.net".to_owned()];
        let page = Page::open(path.clone(), names, origins, transport).unwrap();
        let page = Arc::new(page);
        let router = router(page.clone(), route::router(Desk::of_page(desk(), None)));
        Site { page, router, path, file, tokens }
    }

    fn token(&self, role: Role) -> String {
        format!("Bearer {}", self.tokens[role as usize])
    }

    /// Asks from 192.0.2.1, under the name of the gateway unless the headers have another.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Heard {
        self.ask_from("192.0.2.1", method, path, headers, body)
    }

    fn ask_from(&self, from: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Heard {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "gateway.example.net:9479");
        }
        if method == "POST" && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let request = request.body(body.to_owned()).unwrap();
        let peer = SocketAddr::new(from.parse().unwrap(), 4000);
        let service = TowerToHyperService::new(self.router.clone().layer(Extension(Peer(peer))));
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (head, body) = service.call(request).await.unwrap().into_parts();
            let bytes = to_bytes(body, 4 << 20).await.unwrap();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Heard { status: head.status, headers: head.headers, text }
        })
    }

    fn login(&self, role: Role) -> Heard {
        let body = format!("{{\"token\":\"{}\"}}", self.tokens[role as usize]);
        self.ask("POST", "/api/v1/login", &[], &body)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[test]
fn each_route_is_for_its_roles_and_for_nobody_else() {
    let site = Site::new("roles", Transport::Clear);
    let listed: BTreeSet<(String, &str)> =
        ROUTES.iter().map(|route| (route.verb.method().to_string(), route.path)).collect();
    assert_eq!(listed, ACCESS.iter().map(|(method, path, _)| ((*method).to_owned(), *path)).collect());
    for (method, path, least) in ACCESS {
        let Some(least) = least else { continue };
        let target = format!("{BASE}{path}");
        let of = |headers: &[(&str, &str)]| site.ask_from("192.0.2.9", method, &target, headers, "").status;
        assert_eq!(of(&[]), StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(of(&[("cookie", "wirerate=0123456789abcdef")]), StatusCode::UNAUTHORIZED, "{path}");
        for role in Role::ALL {
            let status = of(&[("authorization", &site.token(role))]);
            let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
            match role >= least {
                true => assert!(!refused.contains(&status), "{path} {role}: {status}"),
                false => assert_eq!(status, StatusCode::FORBIDDEN, "{path} {role}"),
            }
        }
    }
}

#[test]
fn what_is_no_route_is_none_for_anybody() {
    let site = Site::new("none", Transport::Clear);
    let token = site.token(Role::Change);
    for path in ["/api/v1/", "/api/v1/nothing", "/status", "/api/v1//status", "/api/v1/st%61tus", "/sas/add"]
    {
        for headers in [&[("authorization", &*token)][..], &[]] {
            assert_eq!(site.ask("GET", path, headers, "").status, StatusCode::NOT_FOUND, "{path}");
        }
    }
    let heard = site.ask("GET", "/api/v1/apply", &[("authorization", &token)], "");
    assert_eq!(heard.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(site.ask("DELETE", "/api/v1/status", &[("authorization", &token)], "").status.as_u16(), 415);
    let heard = site.ask("HEAD", "/api/v1/status", &[], "");
    assert_eq!(heard.status, StatusCode::UNAUTHORIZED);
}

#[test]
fn forged_tokens_are_refused_and_after_a_few_so_is_the_address() {
    let site = Site::new("forged", Transport::Clear);
    let good = site.token(Role::Read);
    let cut = &good[..good.len() - 1];
    let forged = [
        cut,
        "Bearer ",
        "Bearer wirerate_",
        "Basic YTpi",
        "Bearer",
        "\u{7f}",
        &good.replace("wirerate_", ""),
    ];
    for shown in forged {
        if shown.bytes().any(|byte| byte == 0x7f) {
            continue;
        }
        let heard = site.ask("GET", "/api/v1/status", &[("authorization", shown)], "");
        assert_eq!(heard.status, StatusCode::UNAUTHORIZED, "{shown}");
        assert!(heard.text.contains("\"hint\":"), "{}", heard.text);
    }
    let ask = |from, shown: &str| {
        site.ask_from(from, "GET", "/api/v1/status", &[("authorization", shown)], "").status
    };
    for _ in 0..10 {
        ask("198.51.100.7", "Bearer x");
    }
    assert_eq!(ask("198.51.100.7", &good), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask("198.51.100.8", &good), StatusCode::OK);
    let heard = site.ask_from("198.51.100.7", "POST", "/api/v1/login", &[], "{\"token\":\"x\"}");
    assert_eq!(heard.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(heard.headers["retry-after"], "60");
}

#[test]
fn a_session_is_worth_its_token_and_ends() {
    for transport in [Transport::Clear, Transport::Tls] {
        let mut site = Site::new("session", transport);
        assert_eq!(
            site.ask("POST", "/api/v1/login", &[], "{\"token\":\"\"}").status,
            StatusCode::UNAUTHORIZED
        );
        let heard = site.login(Role::Operate);
        assert_eq!(
            (heard.status, &*heard.text),
            (StatusCode::OK, "{\"user\":\"operate\",\"role\":\"operate\"}")
        );
        let cookie = heard.headers["set-cookie"].to_str().unwrap().to_owned();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict") && cookie.contains("; Path=/;"), "{cookie}");
        assert_eq!(cookie.contains("; Secure"), transport == Transport::Tls);
        assert_eq!(cookie.starts_with("__Host-"), transport == Transport::Tls);
        let pair = format!("theme=dark; {}", cookie.split(';').next().unwrap());
        let headers = [("cookie", &*pair)];
        assert_eq!(site.ask("GET", "/api/v1/status", &headers, "").status, StatusCode::OK);
        assert_eq!(site.ask("POST", "/api/v1/apply", &headers, "").status, StatusCode::FORBIDDEN);
        let other = site.login(Role::Operate).headers["set-cookie"].to_str().unwrap().to_owned();
        assert_eq!(site.ask("POST", "/api/v1/logout", &headers, "").status, StatusCode::OK);
        assert_eq!(site.ask("GET", "/api/v1/status", &headers, "").status, StatusCode::UNAUTHORIZED);
        let headers = [("cookie", other.split(';').next().unwrap())];
        assert_eq!(site.ask("GET", "/api/v1/status", &headers, "").status, StatusCode::OK);
        site.file.remove("operate").unwrap();
        fs::write(&site.path, site.file.to_string()).unwrap();
        assert_eq!(
            site.ask("GET", "/api/v1/status", &headers, "").status,
            StatusCode::UNAUTHORIZED,
            "its user is gone"
        );
    }
}

#[test]
fn another_site_gets_nothing_done() {
    let site = Site::new("cross", Transport::Tls);
    let cookie = site.login(Role::Change).headers["set-cookie"].to_str().unwrap().to_owned();
    let pair = cookie.split(';').next().unwrap();
    let own = "https://gateway.example.net:9479";
    let post = |headers: &[(&str, &str)]| {
        let headers = [&[("cookie", pair)], headers].concat();
        site.ask("POST", "/api/v1/rollback", &headers, "").status.as_u16()
    };
    // The stub has no policy on trial.
    assert_eq!(post(&[]), 409);
    assert_eq!(post(&[("origin", own), ("sec-fetch-site", "same-origin")]), 409);
    for origin in [
        "https://evil.example",
        "null",
        "http://gateway.example.net:9479",
        "https://gateway.example.net",
        own.trim_end_matches('9'),
    ] {
        assert_eq!(post(&[("origin", origin)]), 403, "{origin}");
    }
    for origin in [
        "https://gateway.example.net:9479.evil.example",
        "https://evil.example/https://gateway.example.net:9479",
    ] {
        assert_eq!(post(&[("origin", origin)]), 403, "{origin}");
    }
    for site_of in ["cross-site", "same-site", "none", "anything"] {
        assert_eq!(post(&[("sec-fetch-site", site_of)]), 403, "{site_of}");
    }
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=a",
        "",
        "application/jsonp",
    ] {
        assert_eq!(post(&[("content-type", kind)]), 415, "{kind}");
    }
    assert_eq!(post(&[("content-type", "Application/JSON; charset=utf-8")]), 409);
    let get = |headers: &[(&str, &str)]| {
        let headers = [&[("cookie", pair)], headers].concat();
        site.ask("GET", "/api/v1/status", &headers, "").status.as_u16()
    };
    assert_eq!(get(&[("sec-fetch-site", "none")]), 200);
    assert_eq!(get(&[("sec-fetch-site", "cross-site")]), 403);
    assert_eq!(get(&[("origin", "https://evil.example")]), 403);
}

#[test]
fn a_proxy_shows_the_page_under_its_own_origin_and_other_sites_stay_out() {
    let origin = "https://edge.example.net";
    let others = [
        "http://edge.example.net",
        "https://edge.example.net:8443",
        "https://edge.example.net.evil.example",
        "https://evil.edge.example.net",
        "https://evil.example",
        "null",
    ];
    // nginx asks by the address that it has been given, Caddy by the name that it was asked by.
    for (host, transport) in [
        ("127.0.0.1:9479", Transport::Clear),
        ("edge.example.net", Transport::Clear),
        ("192.0.2.1:9479", Transport::Tls),
    ] {
        let site = Site::behind("proxy", transport, &[origin]);
        let body = format!("{{\"token\": \"{}\"}}", &site.token(Role::Change)[7..]);
        let login =
            |origin: &str| site.ask("POST", "/api/v1/login", &[("host", host), ("origin", origin)], &body);
        let heard = login(origin);
        assert_eq!(heard.status, StatusCode::OK, "{host}: {}", heard.text);
        let cookie = heard.headers["set-cookie"].to_str().unwrap().to_owned();
        assert!(cookie.starts_with("__Host-wirerate=") && cookie.ends_with("; Secure"), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        let post = |origin: &str, site_of: &str| {
            let headers = [("host", host), ("cookie", pair), ("origin", origin), ("sec-fetch-site", site_of)];
            site.ask("POST", "/api/v1/rollback", &headers, "").status.as_u16()
        };
        assert_eq!(post(origin, "same-origin"), 409, "{host}: the stub has no policy on trial");
        assert_eq!(post(origin, "cross-site"), 403);
        for other in others {
            assert_eq!((post(other, ""), login(other).status.as_u16()), (403, 403), "{host}: {other}");
        }
        let get = |host: &str| {
            site.ask("GET", "/api/v1/status", &[("host", host), ("cookie", pair)], "").status.as_u16()
        };
        assert_eq!([get(host), get("edge.example.net:443"), get("evil.example")], [200, 200, 403]);
    }
    // Through loopback, as without a proxy: the browser has no TLS, and would not keep the other cookie.
    let site = Site::behind("loopback", Transport::Clear, &[origin]);
    let body = format!("{{\"token\": \"{}\"}}", &site.token(Role::Read)[7..]);
    let direct = [("host", "127.0.0.1:9479"), ("origin", "http://127.0.0.1:9479")];
    let heard = site.ask("POST", "/api/v1/login", &direct, &body);
    let cookie = heard.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("wirerate=") && !cookie.contains("Secure"), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let headers = [("host", "127.0.0.1:9479"), ("cookie", pair)];
    assert_eq!(site.ask("GET", "/api/v1/status", &headers, "").status, StatusCode::OK);
    // Nobody who has named no origin is asked under one.
    let site = Site::new("alone", Transport::Clear);
    let headers = [("host", "127.0.0.1:9479"), ("origin", origin)];
    assert_eq!(site.ask("POST", "/api/v1/login", &headers, &body).status, StatusCode::FORBIDDEN);
}

#[test]
fn a_name_that_somebody_else_gave_the_address_is_refused() {
    let site = Site::new("host", Transport::Clear);
    let of = |host: &str| site.ask("GET", "/", &[("host", host)], "").status.as_u16();
    for host in [
        "127.0.0.1:9479",
        "127.0.0.1",
        "[::1]:9479",
        "[2001:db8::1]",
        "localhost:9479",
        "GATEWAY.example.net.",
        "gateway.example.net:1",
    ] {
        assert_eq!(of(host), 200, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:9479",
        "127.0.0.1.evil.example",
        "gateway.example.net.evil.example",
        "[evil]:9479",
        "localhost.evil.example",
        "@127.0.0.1",
        "::1",
    ] {
        assert_eq!(of(host), 403, "{host}");
    }
    assert_eq!(of(""), 400);
    let twice = [("host", "127.0.0.1"), ("host", "evil.example")];
    assert_eq!(site.ask("GET", "/", &twice, "").status.as_u16(), 400);
}

#[test]
fn changes_and_refusals_are_in_the_audit_log() {
    let site = Site::new("audit", Transport::Clear);
    let [read, change] = [Role::Read, Role::Change].map(|role| site.token(role));
    site.ask("GET", "/api/v1/status", &[("authorization", &read)], "");
    site.ask("POST", "/api/v1/flows/kill?host=192.0.2.7", &[("authorization", &read)], "");
    site.ask("POST", "/api/v1/flows/kill?host=192.0.2.7", &[("authorization", &change)], "");
    site.login(Role::Read);
    site.ask_from("2001:db8::7", "POST", "/api/v1/login", &[], "{\"token\":\"guess\"}");
    let log = site.ask("GET", "/api/v1/audit", &[("authorization", &change)], "").text;
    let entries: Vec<super::AuditEntry> = serde_json::from_str(&log).unwrap();
    let told: Vec<String> = entries
        .iter()
        .map(|entry| {
            let user = entry.user.as_deref().unwrap_or("-");
            format!("{user} {} {} {}", entry.address, entry.request, entry.status)
        })
        .collect();
    assert_eq!(
        told,
        [
            "- 2001:db8::7 POST /api/v1/login 401",
            "read 192.0.2.1 POST /api/v1/login 200",
            "change 192.0.2.1 POST /api/v1/flows/kill?host=192.0.2.7 200",
            "read 192.0.2.1 POST /api/v1/flows/kill?host=192.0.2.7 403",
        ]
    );
    assert!(!log.contains("guess") && site.tokens.iter().all(|token| !log.contains(&**token)));
    for _ in 0..2_000 {
        site.page.audit.record(
            &super::audit::Asked {
                user: None,
                address: [192, 0, 2, 1].into(),
                method: &Method::GET,
                target: &"é".repeat(4096),
            },
            StatusCode::FORBIDDEN,
        );
    }
    let log = site.ask("GET", "/api/v1/audit", &[("authorization", &change)], "").text;
    assert!(log.len() < 2 << 20, "{}", log.len());
}

#[test]
fn a_search_of_flows_goes_on_from_where_it_was() {
    let site = Site::new("flows", Transport::Clear);
    let read = site.token(Role::Read);
    let ask =
        |query: &str| site.ask("GET", &format!("/api/v1/flows{query}"), &[("authorization", &read)], "");
    assert_eq!(ask("").text, "{\"flows\":[],\"more\":false}");
    assert_eq!(ask("?after=0.512&limit=0").text, "{\"flows\":[],\"more\":false}");
    assert_eq!(ask("?after=99.4294967295").text, "{\"flows\":[],\"more\":false}");
    for wrong in ["?after=x", "?after=1", "?after=-1.0", "?limit=x"] {
        let heard = ask(wrong);
        assert!(
            heard.status.is_client_error() && heard.text.contains("\"error\":"),
            "{wrong}: {}",
            heard.text
        );
    }
    let kill = |query: &str| {
        let operate = site.token(Role::Operate);
        site.ask("POST", &format!("/api/v1/flows/kill{query}"), &[("authorization", &operate)], "")
            .status
            .as_u16()
    };
    assert_eq!((kill(""), kill("?limit=3"), kill("?port=53")), (422, 422, 200));
}

#[test]
fn a_plan_names_faults_and_changes() {
    let site = Site::new("plan", Transport::Clear);
    let read = site.token(Role::Read);
    let headers = [("authorization", &*read), ("content-type", "application/toml")];
    let plan = |text: &str| {
        let heard = site.ask("POST", "/api/v1/plan", &headers, text);
        serde_json::from_str::<serde_json::Value>(&heard.text).unwrap()
    };
    let wrong = plan("[interface.east]\nzome = \"a\"\n");
    assert_eq!((&wrong["sound"], &wrong["changes"]), (&false.into(), &serde_json::json!([])));
    let faults = wrong["diagnostics"].as_array().unwrap();
    let unknown = faults.iter().find(|fault| fault["line"] == 2).unwrap();
    assert_eq!((&unknown["severity"], &unknown["code"]), (&"error".into(), &"unknown-key".into()));
    let right =
        plan("[interface.west]\nzone = \"a\"\naddresses = [\"192.0.2.1/24\"]\n[limit]\nflows = 1024\n");
    assert_eq!((&right["sound"], &right["closed"]), (&true.into(), &serde_json::json!(["east"])));
    let things: Vec<&str> =
        right["changes"].as_array().unwrap().iter().filter_map(|one| one["thing"].as_str()).collect();
    assert_eq!(things, ["interface east", "interface west"]);
}

#[test]
fn the_description_has_each_route_with_its_role() {
    let document = openapi::document();
    let mut described = BTreeSet::new();
    for (path, verbs) in document["paths"].as_object().unwrap() {
        for (verb, operation) in verbs.as_object().unwrap() {
            let role = operation["x-role"].as_str().map(str::to_owned);
            described.insert((verb.to_uppercase(), path.clone(), role));
            assert!(operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()), "{path}");
        }
    }
    let known = ACCESS.iter().map(|(method, path, role)| {
        ((*method).to_owned(), format!("{BASE}{path}"), role.map(|role| role.name().to_owned()))
    });
    assert_eq!(described, known.collect());
    // All schemas that it names are there, and say what each member is.
    let text = document.to_string();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let named: BTreeSet<&str> =
        text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(named.len() > 20 && named.contains("Status") && named.contains("Trouble"), "{named:?}");
    for name in named {
        let schema = schemas.get(name).unwrap_or_else(|| panic!("no schema {name}"));
        for (member, of) in schema["properties"].as_object().into_iter().flatten() {
            assert!(of["description"].is_string(), "{name}.{member}: {of}");
        }
    }
}

#[test]
fn the_page_has_nothing_that_could_become_markup_and_lacks_no_file() {
    let site = Site::new("files", Transport::Clear);
    for asset in ASSETS {
        let heard = site.ask("GET", asset.path, &[], "");
        assert_eq!((heard.status, &*heard.text), (StatusCode::OK, asset.text));
        let policy = heard.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(heard.headers["x-content-type-options"], "nosniff");
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "DOMParser",
            "javascript:",
            " style=",
        ] {
            assert!(!asset.text.contains(word), "{} has {word}", asset.path);
        }
        for quoted in asset.text.split('"').skip(1).step_by(2) {
            let file = quoted.strip_prefix('.').unwrap_or(quoted);
            if file.starts_with('/') && [".js", ".css", ".svg"].iter().any(|end| file.ends_with(end)) {
                assert!(ASSETS.iter().any(|asset| asset.path == file), "{} asks for {file}", asset.path);
            }
        }
    }
    let index = ASSETS[0].text;
    assert_eq!(index.matches("<script").count(), 1);
    assert!(index.contains("<script type=\"module\" src=\"/app.js\"></script>"));
}
