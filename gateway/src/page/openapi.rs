//! Description of the API (OpenAPI 3.1), made from the list of routes.

use axum::Json;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::api::Trouble;
use crate::api::route::{BASE, Body, Content, ROUTES, Route, Verb};

/// `GET /openapi.json`.
pub(crate) async fn openapi() -> Json<Value> {
    Json(document())
}

pub(super) fn document() -> Value {
    // The dialect of OpenAPI 3.1 is that of JSON Schema 2020-12.
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(format!("{BASE}{}", route.path)).or_insert_with(|| json!({}));
        let verb = match route.verb {
            Verb::Get => "get",
            Verb::Post => "post",
        };
        path[verb] = operation(route, &mut generator);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "wirerate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The API of a gateway's page. Every request but /login needs a session or a token, whose role \
                            includes that of the route: read, operate, change. Requests that change something are sent \
                            with a content type of JSON or TOML, whether or not they have a body.",
        },
        "security": [{ "token": [] }, { "session": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "wirerate",
                    "description": "Of a browser that has logged in; by TLS its name is __Host-wirerate.",
                },
            },
            "schemas": generator.take_definitions(true),
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let parameters: Vec<Value> = route
        .query
        .iter()
        .map(|parameter| {
            json!({
                "name": parameter.name,
                "in": "query",
                "required": false,
                "description": parameter.about,
                "schema": { "type": parameter.kind },
            })
        })
        .collect();
    let mut responses =
        json!({ "200": { "description": "Done", "content": content(route.answer, generator) } });
    let trouble = generator.subschema_for::<Trouble>();
    let mut fails = |status: &str, about: &str| {
        responses[status] =
            json!({ "description": about, "content": { "application/json": { "schema": trouble } } });
    };
    fails("401", "No login, or an unknown token");
    fails("403", "A role that does not suffice, another site, or a name that is not the gateway's");
    fails("422", "A value that cannot be");
    fails("429", "Too many wrong tokens from this address");
    fails("503", "Too many requests, or the gateway is ending");
    if route.verb == Verb::Post {
        fails("409", "The gateway refuses the change");
        fails("415", "No content type of JSON or TOML");
    }
    let mut operation = json!({
        "summary": route.summary,
        "x-role": route.role.map(|role| role.name()),
        "parameters": parameters,
        "responses": responses,
    });
    match route.body {
        Body::None => {}
        Body::Policy => {
            operation["requestBody"] = json!({
                "required": true,
                "content": { "application/toml": { "schema": { "type": "string" } } },
            });
        }
        Body::Json(members) => {
            let string = json!({ "type": "string" });
            let properties: Map<String, Value> =
                members.iter().map(|member| ((*member).to_owned(), string.clone())).collect();
            operation["requestBody"] = json!({
                "required": true,
                "content": { "application/json": {
                    "schema": { "type": "object", "required": members, "properties": properties },
                } },
            });
        }
        Body::Type(schema) => {
            operation["requestBody"] = json!({
                "required": true,
                "content": { "application/json": { "schema": schema(generator) } },
            });
        }
    }
    if route.role.is_none() {
        operation["security"] = json!([]);
    }
    operation
}

fn content(answer: Content, generator: &mut SchemaGenerator) -> Value {
    match answer {
        Content::Json(schema) => json!({ "application/json": { "schema": schema(generator) } }),
        Content::Policy => json!({ "text/plain": { "schema": { "type": "string" } } }),
        Content::Pcapng => {
            json!({ "application/x-pcapng": { "schema": { "type": "string", "format": "binary" } } })
        }
    }
}
