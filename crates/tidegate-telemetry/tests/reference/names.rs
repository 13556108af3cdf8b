//! What descriptors are called, by each rule of the reference server.

use tidegate_core::{DescriptorDraft, LimitError};

use crate::rig::{HIT, Rig, above, limited, way};

/// The names that were counted under, without what is the same in all.
fn counted(rig: &Rig) -> Vec<String> {
    let page = rig.page();
    let names = page.lines().filter_map(|line| {
        line.strip_prefix("ratelimit.service.rate_limit.")?.strip_suffix(".total_hits: 1")
    });
    names.map(String::from).collect()
}

fn value_to_metric(draft: DescriptorDraft) -> DescriptorDraft {
    DescriptorDraft { value_to_metric: true, ..draft }
}

fn share_threshold(draft: DescriptorDraft) -> DescriptorDraft {
    DescriptorDraft { share_threshold: true, ..draft }
}

fn detailed(mut draft: DescriptorDraft) -> DescriptorDraft {
    draft.limits.iter_mut().for_each(|limit| limit.detailed_metric = true);
    draft
}

#[test]
fn descriptors_are_called_as_in_the_reference() -> Result<(), LimitError> {
    let open = |key: &str| way(key, "");
    let route = || above(way("route", "api/*"), limited(open("method")).unwrap_or_default());
    for (what, rule, asked, expected) in [
        ("key only", limited(open("k"))?, &[("k", "v")][..], "d.k"),
        ("key only, nothing asked", limited(open("k"))?, &[("k", "")], "d.k"),
        ("exact", limited(way("k", "v"))?, &[("k", "v")], "d.k_v"),
        ("a wildcard", limited(way("k", "v*"))?, &[("k", "v1")], "d.k_v*"),
        ("a wildcard above", route(), &[("route", "api/v1"), ("method", "GET")], "d.route_api/*.method"),
        (
            "a wildcard above, by value",
            value_to_metric(route()),
            &[("route", "api/v1"), ("method", "GET")],
            "d.route_api/v1.method",
        ),
        (
            "a wildcard above, shared",
            share_threshold(value_to_metric(route())),
            &[("route", "api/v1"), ("method", "GET")],
            "d.route_api/*.method",
        ),
        ("key only, by value", limited(value_to_metric(open("k")))?, &[("k", "v")], "d.k_v"),
        ("key only, by no value", limited(value_to_metric(open("k")))?, &[("k", "")], "d.k"),
        ("exact, by value", limited(value_to_metric(way("k", "v")))?, &[("k", "v")], "d.k_v"),
        ("a wildcard, by value", limited(value_to_metric(way("k", "v*")))?, &[("k", "v1")], "d.k_v1"),
        (
            "some by value",
            above(value_to_metric(open("a")), above(open("b"), limited(open("c"))?)),
            &[("a", "1"), ("b", "2"), ("c", "3")],
            "d.a_1.b.c",
        ),
        ("detailed", detailed(limited(open("k"))?), &[("k", "v")], "d.k_v"),
        ("detailed, of no value", detailed(limited(open("k"))?), &[("k", "")], "d.k_"),
        (
            "detailed, all the way",
            above(open("a"), detailed(limited(open("b"))?)),
            &[("a", "1"), ("b", "2")],
            "d.a_1.b_2",
        ),
        (
            "detailed, below what is shared",
            above(share_threshold(way("a", "x*")), detailed(limited(open("b"))?)),
            &[("a", "x1"), ("b", "")],
            "d.a_x*.b",
        ),
        ("shared", limited(share_threshold(way("k", "v*")))?, &[("k", "v1")], "d.k_v*"),
        ("a wildcard in the key", limited(open("k*"))?, &[("kilo", "v")], "d.kilo_k*"),
        ("colons and bars", limited(way("k:1", "a|b"))?, &[("k:1", "a|b")], "d.k_1_a_b"),
        ("an address", limited(way("ip", "10.0.0.1"))?, &[("ip", "10.0.0.1")], "d.ip_10_0_0_1"),
        ("an address, by value", limited(value_to_metric(open("ip")))?, &[("ip", "1.2.3.4")], "d.ip_1_2_3_4"),
        ("lines in a value", limited(value_to_metric(open("k")))?, &[("k", "v\nx:1|c\0")], "d.k_v_x_1_c_"),
    ] {
        let rig = Rig::new("d", vec![rule], 100);
        assert_eq!(rig.ask("d", asked, false, &HIT), 1, "{what}");
        assert_eq!(counted(&rig), [expected], "{what}");
    }
    Ok(())
}

#[test]
fn limits_that_requests_bring_are_called_by_all_their_values() {
    for (asked, expected) in [
        (&[("a", "1")][..], "d.a_1"),
        (&[("a", "1"), ("b", ""), ("c", "3")], "d.a_1.b.c_3"),
        (&[("ip", "1.2.3.4")], "d.ip_1_2_3_4"),
    ] {
        let rig = Rig::new("d", Vec::new(), 100);
        assert_eq!(rig.ask("d", asked, true, &HIT), 1);
        assert_eq!(counted(&rig), [expected]);
    }
}

/// Where an address begins and ends, by the reference's regular expression.
#[test]
fn only_the_dots_of_addresses_are_replaced() {
    for (value, expected) in [
        ("1.2.3.4", "1_2_3_4"),
        ("255.255.255.255:80", "255_255_255_255_80"),
        ("1.2.3", "1.2.3"),
        ("1.2.3.", "1.2.3."),
        ("1.2.3.4.5", "1_2_3_4.5"),
        ("1234.1.1.1", "1234_1_1_1"),
        ("1.1.1.1234.5.6.7", "1_1_1_1234_5_6_7"),
        ("a1.2.3.4b", "a1_2_3_4b"),
        ("1..2.3.4", "1..2.3.4"),
        ("v1.22.333.4444", "v1_22_333_4444"),
        ("1.2222.3.4.5.6", "1.2222_3_4_5.6"),
        ("é1.2.3.4é", "é1_2_3_4é"),
    ] {
        let rig = Rig::new("d", Vec::new(), 100);
        rig.ask("d", &[("k", value)], true, &HIT);
        assert_eq!(counted(&rig), [format!("d.k_{expected}")], "{value}");
    }
}

#[test]
fn a_rule_and_a_request_of_the_same_name_are_one() -> Result<(), LimitError> {
    let rig = Rig::new("d", vec![limited(way("k", "v"))?], 100);
    rig.ask("d", &[("k", "v")], false, &HIT);
    rig.ask("d", &[("k", "v")], true, &HIT);
    assert_eq!(rig.value("ratelimit.service.rate_limit.d.k_v.total_hits"), Some(2));
    Ok(())
}
