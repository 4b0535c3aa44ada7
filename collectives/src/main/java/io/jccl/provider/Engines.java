package io.jccl.provider;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.EngineProvider;
import io.jccl.NcclCommunicator;
import io.jccl.bootstrap.SharedFolder;
import io.jccl.device.Device;
import io.jccl.engine.EngineCommunicator;
import io.jccl.engine.host.HostEngine;
import io.jccl.engine.mpi.MpiEngine;
import io.jccl.engine.nccl.NcclEngine;
import io.jccl.rendezvous.Store;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/** The available engines. An engine's classes are loaded when it is first requested. */
public final class Engines implements EngineProvider {
    @Override
    public List<Communicator> host(int size, CommunicatorOptions options) {
        return HostEngine.local(size, options);
    }

    @Override
    public Communicator host(Map<String, String> environment, CommunicatorOptions options) {
        return HostEngine.fromEnvironment(environment, options);
    }

    @Override
    public List<Communicator> nccl(List<? extends Device> devices, CommunicatorOptions options) {
        return NcclEngine.local(devices, options);
    }

    @Override
    public Communicator nccl(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options) {
        return NcclEngine.join(store, name, rank, size, device, options);
    }

    @Override
    public Communicator nccl(
            Map<String, String> environment, Device device, CommunicatorOptions options) {
        return NcclEngine.fromEnvironment(environment, device, options);
    }

    @Override
    public NcclCommunicator ncclGrown(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options) {
        return NcclEngine.joinGrown(store, name, rank, size, device, options);
    }

    @Override
    public boolean isMpiChosen(Map<String, String> environment) {
        return MpiEngine.isChosen(environment);
    }

    @Override
    public Communicator mpi(CommunicatorOptions options) {
        return MpiEngine.fromEnvironment(options);
    }

    @Override
    public void group(List<? extends Communicator> communicators, Runnable body) {
        EngineCommunicator.group(communicators, body);
    }

    @Override
    public void group(Communicator communicator, Runnable body) {
        EngineCommunicator.group(communicator, body);
    }

    @Override
    public Path sharedFolder() {
        return SharedFolder.root();
    }

    @Override
    public void cleanUp(String jobId) {
        SharedFolder.removeJob(jobId);
    }
}
