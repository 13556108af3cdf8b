//! The page that is scraped, in the text format of OpenMetrics. What a label or a number looks like is the library's business; what is
//! on the page, in which order and by which names, is the table's.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabel, EncodeLabelSet, LabelSetEncoder,
    MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use tidegate_core::Micros;

use crate::metrics::{CoreSums, DURATION_BOUNDS_US};
use crate::rules::{PARTS, REMAINING_BOUNDS, RuleSums};
use crate::table::{self, Kind, Metric};
use crate::words::{
    AdminCall, ConnectionRefused, Evicted, InternalCall, Place, Policy, Reason, RequestOutcome, Reservation,
    Said, Server, XdsUpdate,
};
use crate::{Gauges, Metrics, RuleMetrics, StoreServer, log};

/// What the page is sent as.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes the page. It adds up all cores and may be long: for a thread that decides nothing.
pub fn encode(metrics: &Metrics, rules: &RuleMetrics, gauges: &Gauges) -> String {
    let page = Page {
        cores: metrics.sums(),
        rules: rules.sums(),
        gauges: gauges.clone(),
        log_lines_lost: log::lines_lost(),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(page));
    let mut text = String::new();
    let _ = text::encode(&mut text, &registry); // A string takes whatever is written.
    text
}

/// All numbers, added up at one time, so that those that belong together agree.
#[derive(Debug)]
struct Page {
    cores: CoreSums,
    rules: Vec<RuleSums>,
    gauges: Gauges,
    log_lines_lost: u64,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.write_requests(&mut encoder)?;
        self.write_trouble(&mut encoder)?;
        self.write_store(&mut encoder)?;
        self.write_memory(&mut encoder)?;
        self.write_node(&mut encoder)?;
        self.write_rules(&mut encoder) // Last: a hundred thousand rules are a long page, and not everybody reads to its end.
    }
}

impl Page {
    fn write_rules(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = Family::new(encoder, &table::DECISIONS)?;
        for rule in &self.rules {
            for said in Said::ALL {
                let count = match said {
                    Said::Allowed => rule.allowed,
                    Said::Refused => rule.denied.iter().sum(),
                    Said::ShadowRefused => rule.shadow_refused,
                    Said::Degraded => rule.degraded,
                };
                let labels = &rule.labels;
                family.counter(&[&labels.domain, &labels.rule, &labels.tier, said.word()], count)?;
            }
        }
        self.write_rules_of_all_tiers(encoder)?;
        let mut family = Family::new(encoder, &table::REMAINING)?;
        let bounds = REMAINING_BOUNDS.map(|twentieths| twentieths as f64 / 20.0);
        for rule in &self.rules {
            let labels = [&*rule.labels.domain, &*rule.labels.rule, &*rule.labels.tier];
            family.histogram(
                &labels,
                &bounds,
                &rule.remaining,
                rule.remaining_parts as f64 / PARTS as f64,
            )?;
        }
        Ok(())
    }

    /// What is not told by tier: the tiers of a rule stand beside each other in a book or not, and a row must not stand twice.
    fn write_rules_of_all_tiers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut rows: Vec<(&str, &str, [u64; Reason::ALL.len()], u64)> = Vec::new();
        let mut by_rule: Vec<&RuleSums> = self.rules.iter().collect();
        by_rule.sort_by(|one, other| one.labels.rule.cmp(&other.labels.rule));
        for rule in by_rule {
            match rows.last_mut().filter(|(_, id, ..)| *id == &*rule.labels.rule) {
                Some((.., denied, forgiven)) => {
                    denied.iter_mut().zip(rule.denied).for_each(|(sum, count)| *sum += count);
                    *forgiven += rule.forgiven;
                }
                None => rows.push((&rule.labels.domain, &rule.labels.rule, rule.denied, rule.forgiven)),
            }
        }
        let mut family = Family::new(encoder, &table::DENIED)?;
        for (domain, rule, denied, _) in &rows {
            for reason in Reason::ALL {
                family.counter(&[domain, rule, reason.word()], denied[*reason as usize])?;
            }
        }
        let mut family = Family::new(encoder, &table::FORGIVEN)?;
        for (domain, rule, _, forgiven) in &rows {
            family.counter(&[domain, rule], *forgiven)?;
        }
        Ok(())
    }

    fn write_requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let cores = &self.cores;
        let mut family = Family::new(encoder, &table::REQUESTS)?;
        for server in Server::ALL {
            for outcome in RequestOutcome::ALL {
                let count = cores.requests[*server as usize][*outcome as usize];
                family.counter(&[server.word(), outcome.word()], count)?;
            }
        }
        let mut family = Family::new(encoder, &table::DURATION)?;
        let bounds = DURATION_BOUNDS_US.map(|bound_us| bound_us as f64 / 1e6);
        for server in Server::ALL {
            let durations = &cores.durations[*server as usize];
            family.histogram(&[server.word()], &bounds, &durations.buckets, durations.sum_us as f64 / 1e6)?;
        }
        Family::new(encoder, &table::REFUNDS_IGNORED)?.counter(&[], cores.refunds_ignored)?;
        let mut family = Family::new(encoder, &table::PLACES)?;
        for event in Place::ALL {
            let counted = cores.places[*event as usize];
            let count = if *event == Place::Expired { self.gauges.places_expired } else { counted };
            family.counter(&[event.word()], count)?;
        }
        let mut family = Family::new(encoder, &table::RESERVATIONS)?;
        for event in Reservation::ALL {
            family.counter(&[event.word()], cores.reservations[*event as usize])?;
        }
        Ok(())
    }

    fn write_trouble(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let cores = &self.cores;
        // What breaks is not counted locally either.
        let broken = [Policy::Allow, Policy::Local].map(|policy| cores.internal_errors[policy as usize]);
        let failopen = broken.iter().sum::<u64>() + cores.store_failures[Policy::Allow as usize];
        Family::new(encoder, &table::FAILOPEN)?.counter(&[], failopen)?;
        let mut family = Family::new(encoder, &table::STORE_FAILURES)?;
        for policy in Policy::ALL {
            family.counter(&[policy.word()], cores.store_failures[*policy as usize])?;
        }
        let mut family = Family::new(encoder, &table::INTERNAL_ERRORS)?;
        for policy in Policy::ALL {
            family.counter(&[policy.word()], cores.internal_errors[*policy as usize])?;
        }
        let mut family = Family::new(encoder, &table::INTERNAL_CALLS)?;
        for result in InternalCall::ALL {
            family.counter(&[result.word()], cores.internal_calls[*result as usize])?;
        }
        let mut family = Family::new(encoder, &table::CONNECTIONS_REFUSED)?;
        for server in Server::ALL {
            for reason in ConnectionRefused::ALL {
                let count = cores.connections_refused[*server as usize][*reason as usize];
                family.counter(&[server.word(), reason.word()], count)?;
            }
        }
        Family::new(encoder, &table::LOG_LINES_LOST)?.counter(&[], self.log_lines_lost)
    }

    /// Without a store there are no rows.
    fn write_store(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(store) = &self.gauges.store else { return Ok(()) };
        let mut family = Family::new(encoder, &table::REDIS_ERRORS)?;
        for (kind, count) in &store.errors {
            family.counter(&[kind], *count)?;
        }
        let mut family = Family::new(encoder, &table::STORE_DURATION)?;
        let bounds: Vec<f64> = store.times_us.iter().map(|bound_us| *bound_us as f64 / 1e6).collect();
        for server in &store.servers {
            for (op, counts, sum_us) in &server.calls {
                family.histogram(&[&server.address, op], &bounds, counts, *sum_us as f64 / 1e6)?;
            }
        }
        let mut family = Family::new(encoder, &table::STORE_CONNECTIONS)?;
        for server in &store.servers {
            family.gauge(&[&server.address], server.connections)?;
        }
        self.write_circuits(encoder, &store.servers)?;
        if let Some(nodes) = store.nodes {
            Family::new(encoder, &table::FLEET_NODES)?.gauge(&[], nodes)?;
        }
        Family::new(encoder, &table::STORE_REDIRECTS)?.counter(&[], store.redirects)?;
        Family::new(encoder, &table::STORE_REFRESHES)?.counter(&[], store.refreshes)?;
        Family::new(encoder, &table::REMEMBERED_DENIALS)?.counter(&[], store.remembered_denials)?;
        Family::new(encoder, &table::STORE_DISAGREEMENTS)?.counter(&[], store.disagreements)?;
        Family::new(encoder, &table::STORE_IN_FLIGHT)?.gauge(&[], store.in_flight)
    }

    fn write_circuits(&self, encoder: &mut DescriptorEncoder<'_>, servers: &[StoreServer]) -> fmt::Result {
        let mut family = Family::new(encoder, &table::CIRCUIT_STATE)?;
        for server in servers {
            family.gauge(&[&server.address], server.circuit)?;
        }
        let mut family = Family::new(encoder, &table::CIRCUIT_OPENED)?;
        for server in servers {
            family.counter(&[&server.address], server.opened)?;
        }
        let mut family = Family::new(encoder, &table::STORE_MODE)?;
        for server in servers {
            for (mode, spent) in &server.modes {
                family.counter(&[&server.address, mode], spent.as_secs_f64())?;
            }
        }
        let mut family = Family::new(encoder, &table::STORE_EVICTED)?;
        for server in servers {
            if let Some(keys) = server.evicted_keys {
                family.gauge(&[&server.address], keys)?;
            }
        }
        Ok(())
    }

    fn write_memory(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let gauges = &self.gauges;
        Family::new(encoder, &table::KEYS_LIVE)?.gauge(&[], gauges.keys_live)?;
        Family::new(encoder, &table::KEYS_CAPACITY)?.gauge(&[], gauges.keys_capacity)?;
        Family::new(encoder, &table::KEYS_EXPIRED)?.counter(&[], gauges.keys_expired)?;
        let mut family = Family::new(encoder, &table::EVICTIONS)?;
        for kind in Evicted::ALL {
            let keys = match kind {
                // Without those that were being refused: whoever adds up all kinds shall count no key twice.
                Evicted::Live => gauges.evicted_live.saturating_sub(gauges.evicted_refused),
                Evicted::Refused => gauges.evicted_refused,
            };
            family.counter(&[kind.word()], keys)?;
        }
        Family::new(encoder, &table::UNREMEMBERED)?.counter(&[], gauges.unremembered)?;
        Family::new(encoder, &table::COUNTER_BYTES)?.gauge(&[], gauges.counter_bytes)?;
        Family::new(encoder, &table::ARENA_BYTES)?.gauge(&[], gauges.arena_bytes)?;
        Family::new(encoder, &table::ARENA_USED_BYTES)?.gauge(&[], gauges.arena_used_bytes)
    }

    fn write_node(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let gauges = &self.gauges;
        let seconds = |at: Micros| at.get() as f64 / 1e6;
        Family::new(encoder, &table::RULES)?.gauge(&[], gauges.rules)?;
        Family::new(encoder, &table::RELOAD_TIME)?.gauge(&[], seconds(gauges.reloaded_at))?;
        let successful = u32::from(gauges.reload_successful);
        Family::new(encoder, &table::RELOAD_SUCCESSFUL)?.gauge(&[], successful)?;
        Family::new(encoder, &table::RELOADS)?.counter(&[], gauges.reloads)?;
        Family::new(encoder, &table::RELOAD_FAILURES)?.counter(&[], gauges.reload_failures)?;
        self.write_xds(encoder)?;
        self.write_calendars(encoder)?;
        self.write_control(encoder)?;
        if let Some((written, lost)) = gauges.refusals_file {
            Family::new(encoder, &table::REFUSALS_WRITTEN)?.counter(&[], written)?;
            Family::new(encoder, &table::REFUSALS_LOST)?.counter(&[], lost)?;
        }
        if let Some(sink) = &gauges.audit_sink {
            Family::new(encoder, &table::AUDIT_SINK_BEHIND)?.gauge(&[], sink.behind)?;
            Family::new(encoder, &table::AUDIT_SINK_FAILURES)?.counter(&[], sink.failures)?;
        }
        let mut family = Family::new(encoder, &table::CONNECTIONS)?;
        for (server, open) in Server::ALL.iter().zip(gauges.connections) {
            family.gauge(&[server.word()], open)?;
        }
        Family::new(encoder, &table::START_TIME)?.gauge(&[], seconds(gauges.started_at))?;
        let build = gauges.build;
        Family::new(encoder, &table::BUILD_INFO)?.info(&[build.version, build.commit, build.profile])
    }

    /// Without a control plane there are no rows.
    fn write_calendars(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(calendars) = &self.gauges.calendars else { return Ok(()) };
        Family::new(encoder, &table::CALENDAR_WAITING)?.gauge(&[], calendars.waiting)?;
        Family::new(encoder, &table::CALENDAR_WRITTEN)?.counter(&[], calendars.written)?;
        Family::new(encoder, &table::CALENDAR_RESTORED)?.counter(&[], calendars.restored)?;
        Family::new(encoder, &table::CALENDAR_LEFT_OUT)?.counter(&[], calendars.left_out)
    }

    /// Without a control plane there are no rows.
    fn write_control(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(control) = &self.gauges.control else { return Ok(()) };
        Family::new(encoder, &table::CONFIG_STALE)?.gauge(&[], control.stale_seconds)?;
        Family::new(encoder, &table::CONTROL_REVISION)?.gauge(&[], control.revision)?;
        Family::new(encoder, &table::CONTROL_FOLLOW_ERRORS)?.counter(&[], control.follow_errors)?;
        Family::new(encoder, &table::QUOTA_KEYS)?.gauge(&[], control.quota_keys)?;
        Family::new(encoder, &table::QUOTA_BYTES)?.gauge(&[], control.quota_bytes)?;
        let Some(calls) = &control.admin_calls else { return Ok(()) };
        let mut family = Family::new(encoder, &table::ADMIN_CALLS)?;
        for result in AdminCall::ALL {
            family.counter(&[result.word()], calls[*result as usize])?;
        }
        Ok(())
    }

    /// Where rules come from files there are no rows.
    fn write_xds(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(xds) = &self.gauges.xds else { return Ok(()) };
        Family::new(encoder, &table::XDS_CONNECTED)?.gauge(&[], u32::from(xds.connected))?;
        let mut family = Family::new(encoder, &table::XDS_UPDATES)?;
        for result in XdsUpdate::ALL {
            let count = match result {
                XdsUpdate::Accepted => xds.accepted,
                XdsUpdate::Rejected => xds.rejected,
            };
            family.counter(&[result.word()], count)?;
        }
        Ok(())
    }
}

/// One metric on the page.
struct Family<'e> {
    metric: &'static Metric,
    encoder: MetricEncoder<'e>,
}

impl<'e> Family<'e> {
    fn new(encoder: &'e mut DescriptorEncoder<'_>, metric: &'static Metric) -> Result<Self, fmt::Error> {
        static SECONDS: Unit = Unit::Seconds;
        static BYTES: Unit = Unit::Bytes;
        // The library puts suffixes back.
        let name = metric.name;
        let (name, unit, kind) = match metric.kind {
            Kind::Counter => (name.strip_suffix("_total"), None, MetricType::Counter),
            Kind::Info => (name.strip_suffix("_info"), None, MetricType::Info),
            Kind::Gauge => (None, Some(metric.unit), MetricType::Gauge),
            Kind::Histogram => (None, Some(metric.unit), MetricType::Histogram),
        };
        let name = name.unwrap_or(metric.name);
        let (name, unit) = match unit {
            Some("seconds") => (name.strip_suffix("_seconds").unwrap_or(name), Some(&SECONDS)),
            Some("bytes") => (name.strip_suffix("_bytes").unwrap_or(name), Some(&BYTES)),
            _ => (name, None),
        };
        let encoder = encoder.encode_descriptor(name, metric.help, unit, kind)?;
        Ok(Self { metric, encoder })
    }

    fn counter(&mut self, values: &[&str], count: impl EncodeCounterValue) -> fmt::Result {
        self.row(values, |encoder| encoder.encode_counter::<NoLabelSet, _, f64>(&count, None))
    }

    fn gauge(&mut self, values: &[&str], value: impl EncodeGaugeValue) -> fmt::Result {
        self.row(values, |encoder| encoder.encode_gauge(&value))
    }

    /// A count for each bound and perhaps one more, for what is above all.
    fn histogram(&mut self, values: &[&str], bounds: &[f64], counts: &[u64], sum: f64) -> fmt::Result {
        let above = if counts.len() > bounds.len() { counts.last().copied() } else { None };
        let buckets = bounds.iter().copied().zip(counts.iter().copied());
        let buckets: Vec<(f64, u64)> = buckets.chain([(f64::INFINITY, above.unwrap_or(0))]).collect();
        let count = counts.iter().sum();
        self.row(values, |encoder| encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None))
    }

    fn info(&mut self, values: &[&str]) -> fmt::Result {
        let row = Row { metric: self.metric, values };
        self.encoder.encode_info(&row)
    }

    fn row(
        &mut self,
        values: &[&str],
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let row = Row { metric: self.metric, values };
        match values {
            [] => write(&mut self.encoder),
            _ => write(&mut self.encoder.encode_family(&row)?),
        }
    }
}

/// The labels of one row: names from the table, and a value for each.
struct Row<'r> {
    metric: &'static Metric,
    values: &'r [&'r str],
}

impl EncodeLabelSet for Row<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        debug_assert_eq!(self.metric.labels.len(), self.values.len(), "{}", self.metric.name);
        for (label, value) in self.metric.labels.iter().zip(self.values) {
            (label.name, *value).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}
