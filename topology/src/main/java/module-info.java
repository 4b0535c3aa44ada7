/** Machine topology: parsers, graph, planners, cost model, simulator and pictures. Pure Java. */
module io.jccl.topology {
    requires java.xml;
    requires static org.jspecify;

    exports io.jccl.topology;
    exports io.jccl.topology.cost;
    exports io.jccl.topology.draw;
    exports io.jccl.topology.nccl;
    exports io.jccl.topology.plan;
    exports io.jccl.topology.read;
    exports io.jccl.topology.simulate;
}
