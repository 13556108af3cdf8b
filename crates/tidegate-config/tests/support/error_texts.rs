//! What envoyproxy/ratelimit says of bad rules, and whether ours says the same: the one table. It is played through the loader here, and on
//! the real server in `crates/tidegate/tests/reference_server`.

/// A bad set of rules.
pub(crate) struct ErrorText {
    /// Its files, by their names.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// May a domain stand in several of them?
    pub(crate) merge: bool,
    /// What the reference server says: `<file>: <message>`.
    pub(crate) text: &'static str,
    pub(crate) ours: Ours,
}

/// What ours says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ours {
    /// The same.
    Same,
    /// The same as the newest one. The version that Go's registry has is older, and says this.
    SameAsNewest(&'static str),
    /// Nothing: ours takes the rules, for this reason.
    Takes(&'static str),
}

const fn row(files: &'static [(&'static str, &'static str)], text: &'static str, ours: Ours) -> ErrorText {
    ErrorText { files, merge: false, text, ours }
}

/// A file of its own, `r.yaml`.
macro_rules! same {
    ($file:literal, $text:literal) => {
        row(&[("r.yaml", $file)], concat!("r.yaml: ", $text), Ours::Same)
    };
}

macro_rules! takes {
    ($file:literal, $text:literal, $why:literal) => {
        row(&[("r.yaml", $file)], concat!("r.yaml: ", $text), Ours::Takes($why))
    };
}

/// The table.
#[rustfmt::skip]
pub(crate) const ERROR_TEXTS: &[ErrorText] = &[
    // Domains.
    same!("descriptors:\n", "config file cannot have empty domain"),
    same!("domain: ''\n", "config file cannot have empty domain"),
    same!("", "config file cannot have empty domain"),
    same!("# nothing\n", "config file cannot have empty domain"),
    row(&[("a.yaml", "domain: d\n"), ("b.yaml", "domain: d\n")], "b.yaml: duplicate domain 'd' in config file", Ours::Same),
    // Keys of descriptors.
    same!("domain: d\ndescriptors:\n  - value: v\n", "descriptor has empty key"),
    same!("domain: d\ndescriptors:\n  - key: ''\n", "descriptor has empty key"),
    same!("domain: d\ndescriptors:\n  - key:\n", "descriptor has empty key"),
    same!("domain: d\ndescriptors: [{ key: a, value: b }, { key: a, value: b }]\n", "duplicate descriptor composite key 'd.a_b'"),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, value: b, descriptors: [{ key: c }, { key: c }] }\n",
        "duplicate descriptor composite key 'd.a_b.c'"
    ),
    ErrorText {
        files: &[("a.yaml", "domain: d\ndescriptors: [{ key: a }]\n"), ("b.yaml", "domain: d\ndescriptors: [{ key: a }]\n")],
        merge: true,
        text: "b.yaml: duplicate descriptor composite key 'd.a'",
        ours: Ours::Same,
    },
    takes!(
        "domain: d\ndescriptors: [{ key: a, value: b_c }, { key: a_b, value: c }]\n",
        "duplicate descriptor composite key 'd.a_b_c'",
        "they are two descriptors: nobody who asks for one means the other"
    ),
    // Limits.
    same!("domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: foo, requests_per_unit: 5 } }\n", "invalid rate limit unit 'foo'"),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: unknown, requests_per_unit: 5 } }\n",
        "invalid rate limit unit 'unknown'"
    ),
    same!("domain: d\ndescriptors:\n  - { key: a, rate_limit: { requests_per_unit: 5 } }\n", "invalid rate limit unit ''"),
    same!("domain: d\ndescriptors:\n  - { key: a, rate_limit: {} }\n", "invalid rate limit unit ''"),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unlimited: true, unit: day } }\n",
        "should not specify rate limit unit when unlimited"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, name: x, replaces: [{ name: x }] } }\n",
        "replaces should not contain name of same descriptor"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, name: x, replaces: [{ name: }] } }\n",
        "should not have an empty replaces entry"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, replaces: [{ name: '' }] } }\n",
        "should not have an empty replaces entry"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, replaces: [{}] } }\n",
        "should not have an empty replaces entry"
    ),
    row(
        &[("r.yaml", "domain: d\ndescriptors:\n  - { key: a, value: b, share_threshold: true }\n")],
        "r.yaml: share_threshold can only be used with wildcard values (containing '*'), but found key 'a_b'",
        Ours::SameAsNewest("r.yaml: share_threshold can only be used with wildcard values (ending with '*'), but found key 'a_b'"),
    ),
    row(
        &[("r.yaml", "domain: d\ndescriptors:\n  - { key: a, share_threshold: true }\n")],
        "r.yaml: share_threshold can only be used with wildcard values (containing '*'), but found key 'a'",
        Ours::SameAsNewest("r.yaml: share_threshold can only be used with wildcard values (ending with '*'), but found key 'a'"),
    ),
    // Keys of maps, and what stands in lists.
    same!("domain: d\ndescriptors:\n  - { key: a, ratelimit: { unit: day } }\n", "config error, unknown key 'ratelimit'"),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requestsperunit: 5 } }\n",
        "config error, unknown key 'requestsperunit'"
    ),
    same!("domain: d\nfoo: 1\n", "config error, unknown key 'foo'"),
    same!("domain: d\n0.25: x\n", "config error, key is not of type string: 0.25"),
    same!("domain: d\n1: x\n", "config error, key is not of type string: 1"),
    same!("domain: d\n0x10: x\n", "config error, key is not of type string: 16"),
    same!("domain: d\nyes: x\n", "config error, key is not of type string: true"),
    same!("domain: d\n~: x\n", "config error, key is not of type string: <nil>"),
    same!("domain: d\ndescriptors: [a, b]\n", "config error, yaml file contains list of type other than map: a"),
    same!("domain: d\ndescriptors: [1.50]\n", "config error, yaml file contains list of type other than map: 1.5"),
    same!("domain: d\ndescriptors: [[a, 1, yes, ~]]\n", "config error, yaml file contains list of type other than map: [a 1 true <nil>]"),
    same!("domain: d\ndescriptors:\n  -\n", "config error, yaml file contains list of type other than map: <nil>"),
    same!("domain: d\ndescriptors:\n  - { key: a, value: [x] }\n", "config error, yaml file contains list of type other than map: x"),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, replaces: [x] } }\n",
        "config error, yaml file contains list of type other than map: x"
    ),
    takes!("domain: d\nx-team: a\n", "config error, unknown key 'x-team'", "keys that begin with `x-` are the writer's own"),
    same!("domain: d\ndescriptors:\n  - { key: a, algorithm: gcra, rate_limit: { unit: day } }\n", "config error, unknown key 'algorithm'"),
    takes!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, algorithm: gcra } }\n",
        "config error, unknown key 'algorithm'",
        "our own keys work in the place of envoyproxy/ratelimit too"
    ),
    // Values.
    same!("domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requests_per_unit: 1.5 } }\n", "error checking config"),
    takes!("domain: d\ndescriptors:\n  - { key: a, value: 1.0 }\n", "error checking config", "`1.0` is a value like any other, as `1` is"),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requests_per_unit: abc } }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!str `abc` into uint32"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requests_per_unit: abcdefghijklmno } }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!str `abcdefg...` into uint32"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requests_per_unit: -1 } }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!int `-1` into uint32"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requests_per_unit: 4294967296 } }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!int `4294967296` into uint32"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, shadow_mode: maybe }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!str `maybe` into bool"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, value: { key: b } }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!map into string"
    ),
    same!(
        "domain: d\ndescriptors: x\n",
        "error loading config file: yaml: unmarshal errors:\n  line 2: cannot unmarshal !!str `x` into []config.YamlDescriptor"
    ),
    same!(
        "domain: d\ndescriptors: { key: a }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 2: cannot unmarshal !!map into []config.YamlDescriptor"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: x }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!str `x` into config.YamlRateLimit"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: [{ unit: day }] }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!seq into config.YamlRateLimit"
    ),
    same!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, replaces: x } }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!str `x` into []config.yamlReplaces"
    ),
    same!(
        "- a\n",
        "error loading config file: yaml: unmarshal errors:\n  line 1: cannot unmarshal !!seq into map[interface {}]interface {}"
    ),
    same!(
        "abc\n",
        "error loading config file: yaml: unmarshal errors:\n  line 1: cannot unmarshal !!str `abc` into map[interface {}]interface {}"
    ),
    takes!(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requests_per_unit: '5' } }\n",
        "error loading config file: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!str `5` into uint32",
        "it is clear what is meant"
    ),
    // YAML that is none.
    same!("'''\n", "error loading config file: yaml: line 2: found unexpected end of stream"),
    same!("domain: \"d\n", "error loading config file: yaml: line 2: found unexpected end of stream"),
    same!("domain: [d\ndescriptors:\n", "error loading config file: yaml: line 1: did not find expected ',' or ']'"),
    same!("domain: {d\nx: y\n", "error loading config file: yaml: line 1: did not find expected ',' or '}'"),
    same!(
        "domain: d\ndescriptors:\n  - {key: a\n  - key: b\n",
        "error loading config file: yaml: line 3: did not find expected ',' or '}'"
    ),
    same!("domain: [d}\n", "error loading config file: yaml: did not find expected ',' or ']'"),
    same!("domain: d\n  descriptors:\n", "error loading config file: yaml: line 2: mapping values are not allowed in this context"),
    same!("domain: a: b\n", "error loading config file: yaml: mapping values are not allowed in this context"),
    same!("domain: d\n\tdescriptors:\n", "error loading config file: yaml: line 2: found a tab character that violates indentation"),
    same!("domain: d\ndescriptors:\n\t- key: a\n", "error loading config file: yaml: line 3: found character that cannot start any token"),
    same!("domain: @d\n", "error loading config file: yaml: found character that cannot start any token"),
    same!("domain: d\ndescriptors\n", "error loading config file: yaml: line 3: could not find expected ':'"),
    same!(
        "domain: d\ndescriptors:\n  - key: a\n    value: *\n",
        "error loading config file: yaml: line 4: did not find expected alphabetic or numeric character"
    ),
    same!("domain: *x\n", "error loading config file: yaml: unknown anchor 'x' referenced"),
    same!("domain: \"\\q\"\n", "error loading config file: yaml: found unknown escape character"),
    same!("domain: \"a\" b\n", "error loading config file: yaml: did not find expected key"),
    same!("domain: - a\n", "error loading config file: yaml: block sequence entries are not allowed in this context"),
    same!(
        "domain: d\ndescriptors:\n  - key: a\n   value: b\n",
        "error loading config file: yaml: line 3: did not find expected '-' indicator"
    ),
    same!("domain: d\u{1}\n", "error loading config file: yaml: control characters are not allowed"),
    same!("a: &a 5\ndomain: { <<: *a }\n", "error loading config file: yaml: map merge requires map or sequence of maps as the value"),
];
