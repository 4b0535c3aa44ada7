package io.jccl.cli.plan;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.cli.shell.Version;
import io.jccl.offload.Tier;
import io.jccl.offload.memplan.Attention;
import io.jccl.offload.memplan.Experts;
import io.jccl.offload.memplan.Formula;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.Machine;
import io.jccl.offload.memplan.Model;
import io.jccl.offload.memplan.Plan;
import io.jccl.offload.memplan.Techniques;
import io.jccl.offload.memplan.Traffic;
import io.jccl.offload.memplan.Usage;
import io.jccl.offload.timeplan.StepTime;
import java.io.UncheckedIOException;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** The planner's result as JSON. A separate class, so that nothing else loads Jackson. */
final class PlanJson {
    /**
     * Increases when a field is removed or changes its meaning; new fields may be added at any
     * time.
     */
    private static final int SCHEMA = 1;

    private PlanJson() {}

    static String plan(PlanText.Answer answer, @Nullable StepTime time) {
        ObjectNode root = root(answer.plan().job());
        root.setAll(plan(answer.plan()));
        if (time != null) {
            TimeText.json(root.putObject("time"), time);
        }
        ObjectNode largest = root.putObject("largest");
        if (answer.largest().fits()) {
            largest.set("with_these_techniques", model(answer.largest().job().model()));
        } else {
            largest.putNull("with_these_techniques");
        }
        Plan most = answer.most();
        if (most == null) {
            largest.putNull("with_any");
        } else {
            ObjectNode any = largest.putObject("with_any");
            any.set("model", model(most.job().model()));
            any.set("techniques", techniques(most.techniques()));
        }
        ArrayNode next = root.putArray("next");
        answer.next().forEach(p -> next.add(techniques(p.techniques())));
        Plan onMore = answer.onMore();
        if (onMore == null) {
            root.putNull("on_more_machines");
        } else {
            ObjectNode more = root.putObject("on_more_machines");
            more.put("machines", onMore.job().machine().machines());
            more.set("techniques", techniques(onMore.techniques()));
        }
        return text(root);
    }

    static String search(Job job, int tried, List<Plan> shown) {
        ObjectNode root = root(job);
        root.put("combinations", tried);
        ArrayNode list = root.putArray("largest");
        for (Plan p : shown) {
            ObjectNode node = plan(p);
            node.set("model", model(p.job().model()));
            list.add(node);
        }
        return text(root);
    }

    static String ranking(Job job, List<StepTime> ranked) {
        ObjectNode root = root(job);
        Set<StepTime> front = Collections.newSetFromMap(new IdentityHashMap<>());
        front.addAll(SpeedSearch.front(ranked));
        root.put("combinations", ranked.size());
        ArrayNode list = root.putArray("ranking");
        for (StepTime t : SpeedSearch.documented(ranked)) {
            ObjectNode node = list.addObject();
            node.set("techniques", techniques(t.plan().techniques()));
            node.put("device_bytes", t.plan().device().total());
            node.put("pareto", front.contains(t));
            TimeText.json(node.putObject("time"), t);
        }
        return text(root);
    }

    private static ObjectNode root(Job job) {
        ObjectNode root = JsonNodeFactory.instance.objectNode();
        root.put("schema", SCHEMA);
        root.put("jccl_version", Version.TEXT);
        root.set("model", model(job.model()));
        root.put("micro_batch", job.batch().micro());
        root.put("accumulation", job.batch().accumulation());
        root.put("precision", job.precision().label());
        root.put("optimizer", job.optimizer().label());
        root.put("system", job.system().name());
        root.put("attention", job.kernel().label());
        root.put("lora_rank", job.adapters().rank());
        root.put("lora_matrices", job.adapters().matrices().label());
        root.put("trained_parameters", Math.round(job.adapters().trained(job.model())));
        Machine m = job.machine();
        ObjectNode machine = root.putObject("machine");
        machine.put("gpus", m.gpus());
        machine.put("device_bytes", m.device());
        machine.put("host_bytes", m.host());
        machine.put("nvme_bytes", m.nvme());
        machine.put("machines", m.machines());
        ObjectNode sources = root.putObject("sources");
        for (Formula f : Formula.values()) {
            sources.put(f.title(), f.source());
        }
        return root;
    }

    private static ObjectNode model(Model m) {
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        node.put("parameters", m.parameters());
        node.put("layers", m.layers());
        node.put("hidden", m.hidden());
        node.put("heads", m.heads());
        if (m.attention() instanceof Attention.Grouped g) {
            node.put("kv_heads", g.groups());
        }
        node.put("vocabulary", m.vocabulary());
        node.put("sequence", m.sequence());
        node.put("ffn", m.ffn());
        node.put("tied", m.tied());
        node.put("active_parameters", Math.round(m.activeParameters()));
        Experts experts = m.experts();
        if (experts != null) {
            node.put("experts", experts.count());
            node.put("experts_per_token", experts.active());
        }
        return node;
    }

    private static ObjectNode techniques(Techniques t) {
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        node.put("text", t.toString());
        node.put("zero", t.stage());
        node.put("optimizer", tier(t.optimizer()));
        node.put("gradients", tier(t.gradients()));
        node.put("parameters", tier(t.parameters()));
        node.put("activations", tier(t.activations()));
        node.put("recomputation", t.recomputation().label());
        node.put("pieces", t.pieces());
        node.put("tensor", t.tensor());
        node.put("sequence_parallel", t.split().sequenceParallel());
        node.put("pipeline", t.pipeline());
        node.put("chunks", t.split().chunks());
        node.put("context", t.split().context());
        node.put("expert", t.split().expert());
        return node;
    }

    private static ObjectNode plan(Plan p) {
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        node.set("techniques", techniques(p.techniques()));
        node.put("fits", p.fits());
        node.put("state_bytes_per_parameter", p.stateBytesPerParameter());
        ObjectNode tiers = node.putObject("tiers");
        for (Tier tier : Tier.values()) {
            tiers.set(tier(tier), usage(p.usage(tier)));
        }
        ArrayNode traffic = node.putArray("traffic_per_gpu");
        for (Traffic t : p.traffic()) {
            ObjectNode one = traffic.addObject();
            one.put("kind", t.kind().label());
            one.put("what", t.what());
            one.put("bytes", t.bytes());
        }
        ObjectNode compute = node.putObject("compute");
        compute.put("batch", p.compute().batch());
        compute.put("flops", p.compute().flops());
        compute.put("flops_without_recomputation", p.compute().withoutRecomputation());
        compute.put("flops_with_full_recomputation", p.compute().withFullRecomputation());
        return node;
    }

    private static ObjectNode usage(Usage u) {
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        node.put("parameters", u.parameters());
        node.put("gradients", u.gradients());
        node.put("optimizer", u.optimizer());
        node.put("activations", u.activations());
        node.put("temporary", u.temporary());
        node.put("communication", u.communication());
        node.put("reserved", u.reserved());
        node.put("total", u.total());
        node.put("capacity", u.capacity());
        node.put("missing", u.missing());
        node.put("fits", u.fits());
        return node;
    }

    private static String tier(Tier tier) {
        return switch (tier) {
            case DEVICE -> "device";
            case PINNED -> "host";
            case NVME -> "nvme";
        };
    }

    private static String text(ObjectNode root) {
        try {
            return new ObjectMapper()
                    .enable(SerializationFeature.INDENT_OUTPUT)
                    .writeValueAsString(root);
        } catch (JsonProcessingException e) {
            throw new UncheckedIOException(e);
        }
    }
}
