//! The page of names and values, and the one that Prometheus scrapes.

use std::time::Duration;

use tidegate_core::LimitError;
use tidegate_telemetry::reference::{
    Judged, LocalCacheGauges, PoolGauges, REFERENCE_TABLE, ReferenceGauges, ReferenceKind, ReferenceMethod,
    ReferenceMetric, ReferenceStatsSettings,
};

use crate::rig::{HIT, Rig, above, limited, settings, way};
use crate::support::Page;

/// A text as Prometheus reads it; the reader of the tests wants the end that OpenMetrics has.
fn scraped(rig: &Rig, gauges: &ReferenceGauges) -> Page {
    Page::parse(&format!("{}# EOF\n", rig.stats.prometheus(gauges)))
}

fn all_gauges() -> ReferenceGauges {
    let pool = PoolGauges { cx_active: 3, cx_total: 5, cx_local_close: 2 };
    let local_cache = LocalCacheGauges { entry_count: 4, hit_count: 9, ..LocalCacheGauges::default() };
    ReferenceGauges {
        redis_pool: Some(pool),
        redis_per_second_pool: Some(PoolGauges { cx_active: 1, ..pool }),
        local_cache: Some(local_cache),
    }
}

#[test]
fn the_page_tells_every_number_at_once_and_sorted() -> Result<(), LimitError> {
    let rig = Rig::new("d", vec![limited(way("k", "v"))?], 100);
    assert_eq!(rig.value("ratelimit.service.rate_limit.d.k_v.total_hits"), Some(0)); // There from the start.
    rig.ask("d", &[("k", "v")], false, &Judged { before: 8, hits: 5, shadow: true, ..HIT });
    rig.ask("d", &[("k", "v")], false, &Judged { cached: true, ..HIT });
    rig.stats.domain_not_found("no:such", 2);
    rig.stats.config_load(true);
    rig.stats.config_load(false);
    rig.stats.global_shadow_mode();
    rig.stats.redis_error();
    rig.stats.service_error();
    rig.stats.call(1, ReferenceMethod::ShouldRateLimit, Duration::from_millis(3));
    let page = rig.stats.page(&all_gauges());
    let expected = "ratelimit.localcache.averageAccessTime: 0
ratelimit.localcache.entryCount: 4
ratelimit.localcache.evacuateCount: 0
ratelimit.localcache.expiredCount: 0
ratelimit.localcache.hitCount: 9
ratelimit.localcache.lookupCount: 0
ratelimit.localcache.missCount: 0
ratelimit.localcache.overwriteCount: 0
ratelimit.redis_per_second_pool.cx_active: 1
ratelimit.redis_per_second_pool.cx_local_close: 2
ratelimit.redis_per_second_pool.cx_total: 5
ratelimit.redis_pool.cx_active: 3
ratelimit.redis_pool.cx_local_close: 2
ratelimit.redis_pool.cx_total: 5
ratelimit.service.call.should_rate_limit.redis_error: 1
ratelimit.service.call.should_rate_limit.service_error: 1
ratelimit.service.config_load_error: 1
ratelimit.service.config_load_success: 1
ratelimit.service.global_shadow_mode: 1
ratelimit.service.names_shared: 0
ratelimit.service.rate_limit.d.k_v.near_limit: 2
ratelimit.service.rate_limit.d.k_v.over_limit: 4
ratelimit.service.rate_limit.d.k_v.over_limit_with_local_cache: 1
ratelimit.service.rate_limit.d.k_v.shadow_mode: 3
ratelimit.service.rate_limit.d.k_v.total_hits: 6
ratelimit.service.rate_limit.d.k_v.total_negative_hits: 0
ratelimit.service.rate_limit.d.k_v.within_limit: 0
ratelimit.service.rate_limit.no_such.domain_not_found: 2
ratelimit_server.Check.total_requests: 0
ratelimit_server.ShouldRateLimit.total_requests: 1
";
    assert_eq!(page, expected);
    Ok(())
}

#[test]
fn tags_stand_behind_every_name_and_are_labels() -> Result<(), LimitError> {
    let extra_tags = [("zone", "eu.1"), ("app", "shop")].map(|(tag, value)| (tag.into(), value.into()));
    let settings = ReferenceStatsSettings { extra_tags: extra_tags.into(), ..settings(100) };
    let rig = Rig::with("d", vec![limited(way("k", ""))?], settings);
    rig.ask("d", &[("k", "v")], false, &HIT);
    let page = rig.stats.page(&all_gauges());
    let untagged = page.lines().filter(|line| !line.contains(".__app=shop.__zone=eu_1: "));
    assert_eq!(untagged.count(), 0, "{page}");
    let scraped = scraped(&rig, &all_gauges());
    let tagged = |name: &str| scraped.value(name, &[("app", "shop"), ("zone", "eu_1")]);
    assert_eq!(tagged("ratelimit_service_rate_limit_total_hits"), Some(1.0));
    assert_eq!(tagged("ratelimit_redis_pool_cx_active"), Some(3.0));
    Ok(())
}

#[test]
fn prometheus_has_the_names_and_levels_of_the_reference() -> Result<(), LimitError> {
    let deep = |leaf: &str| -> Result<_, LimitError> {
        Ok(above(way("a", "1"), above(way("b", ""), limited(way("c", leaf))?)))
    };
    let mut first = deep("x")?;
    first.descriptors.extend(deep("y")?.descriptors.into_iter().map(|mut below| {
        below.value = Some("2".into());
        below
    }));
    first.descriptors[0].descriptors.push(limited(way("c", "z"))?);
    let rig = Rig::new("d", vec![first, limited(way("say \"\\", ""))?], 100);
    for (asked, hits) in [
        (&[("a", "1"), ("b", "9"), ("c", "x")][..], 2),
        (&[("a", "1"), ("b", "9"), ("c", "z")], 3),
        (&[("a", "1"), ("b", "2"), ("c", "y")], 4),
        (&[("say \"\\", "9")], 5),
    ] {
        assert_eq!(rig.ask("d", asked, false, &Judged { hits, ..HIT }), 1, "{asked:?}");
    }
    let page = scraped(&rig, &ReferenceGauges::default());
    let hits = |labels: &[(&str, &str)]| page.value("ratelimit_service_rate_limit_total_hits", labels);
    // What is below the second level is added to it.
    assert_eq!(hits(&[("domain", "d"), ("key1", "a_1"), ("key2", "b")]), Some(5.0));
    assert_eq!(hits(&[("domain", "d"), ("key1", "a_1"), ("key2", "b_2")]), Some(4.0));
    assert_eq!(hits(&[("domain", "d"), ("key1", "say \"\\")]), Some(5.0));
    let one_level = page.samples.iter().find(|sample| sample.label("key1") == Some("say \"\\"));
    assert_eq!(one_level.and_then(|sample| sample.label("key2")), None);
    Ok(())
}

#[test]
fn response_times_are_a_histogram_in_seconds_or_as_they_once_were() {
    for (as_milliseconds, expected, sum) in
        [(false, [3.0, 3.0, 4.0, 5.0], 10.509), (true, [1.0, 1.0, 3.0, 3.0], 10_509.0)]
    {
        let settings =
            ReferenceStatsSettings { response_time_as_milliseconds: as_milliseconds, ..settings(10) };
        let rig = Rig::with("d", Vec::new(), settings);
        for took_us in [500, 3_500, 5_000, 500_000, 10_000_000] {
            let took = Duration::from_micros(took_us);
            rig.stats.call(took_us as usize, ReferenceMethod::ShouldRateLimit, took);
        }
        let page = scraped(&rig, &ReferenceGauges::default());
        let name = "ratelimit_service_response_time_seconds";
        let method = ("grpc_method", "ShouldRateLimit");
        let bucket = |bound| page.value(&format!("{name}_bucket"), &[method, ("le", bound)]);
        assert_eq!(["0.005", "0.01", "5", "10"].map(bucket), expected.map(Some));
        assert_eq!(bucket("+Inf"), Some(5.0));
        assert_eq!(page.value(&format!("{name}_sum"), &[method]), Some(sum));
        assert_eq!(page.value(&format!("{name}_count"), &[method]), Some(5.0));
        assert_eq!(page.value("ratelimit_service_total_requests", &[method]), Some(5.0));
    }
}

#[test]
fn prometheus_is_told_what_the_table_says_and_nothing_else() -> Result<(), LimitError> {
    let rig = Rig::new("d", vec![limited(way("k", "v"))?], 100);
    rig.ask("d", &[("k", "v")], false, &HIT);
    rig.stats.domain_not_found("x", 1);
    rig.stats.redis_error();
    let page = scraped(&rig, &all_gauges());
    for metric in REFERENCE_TABLE {
        let kind = match metric.kind {
            ReferenceKind::Timer => "histogram",
            kind => kind.word(),
        };
        assert_eq!(
            page.kinds.get(metric.prometheus).map(String::as_str),
            Some(kind),
            "{}",
            metric.prometheus
        );
    }
    for sample in &page.samples {
        let stem = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| sample.name.strip_suffix(suffix));
        let is =
            |metric: &&ReferenceMetric| metric.prometheus == sample.name || Some(metric.prometheus) == stem;
        let metric = REFERENCE_TABLE.into_iter().find(is);
        let labels = metric.map(|metric| metric.labels).unwrap_or_default();
        let known = |label: &str| labels.contains(&label) || (label == "le" && stem.is_some());
        assert!(metric.is_some() && sample.labels.iter().all(|(label, _)| known(label)), "{sample:?}");
    }
    let error = |kind: &str| page.value("ratelimit_service_should_rate_limit_error", &[("err_type", kind)]);
    assert_eq!((error("redis_error"), error("service_error")), (Some(1.0), Some(0.0)));
    assert_eq!(page.value("ratelimit_service_rate_limit_domain_not_found", &[("domain", "x")]), Some(1.0));
    Ok(())
}
