import torch
from opacus import PrivacyEngine
from task import records
from torch.utils.data import DataLoader, TensorDataset

X, y, X_test, y_test, hospital = records()
rows = TensorDataset(torch.tensor(X).float(), torch.tensor(y).float())
model = torch.nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private_with_epsilon(
    module=model,
    optimizer=optimizer,
    data_loader=DataLoader(rows, batch_size=256),
    epochs=10,
    target_epsilon=1.0,
    target_delta=1e-5,
    max_grad_norm=1.0,
)
loss = torch.nn.BCEWithLogitsLoss()
for _ in range(10):
    for some, labels in loader:
        optimizer.zero_grad()
        loss(model(some)[:, 0], labels).backward()
        optimizer.step()
scores = model(torch.tensor(X_test).float())[:, 0].detach().numpy()
accuracy = ((scores > 0) == y_test).mean()
epsilon = engine.get_epsilon(1e-5)
print(
    f"accuracy {accuracy:.3f}, ε = {epsilon:.2f}, δ = 1e-5; one owner"
)
